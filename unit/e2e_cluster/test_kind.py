"""The commands for `kind`, recorded by stand-ins; no container engine takes part."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from e2e.cluster import ClusterError, down, get_cluster, up
from e2e.cluster.state import folder_of
from unit.e2e_cluster.conftest import StandIns

pytestmark = pytest.mark.usefixtures("built")

TOP = "if sys.argv[1] == 'top': print('PID COMMAND\\n  11 systemd\\n 412 kubelet\\n 500 kube-controller')"


@pytest.fixture(autouse=True)
def programs(stand_ins: StandIns) -> None:
    stand_ins.add("kind")
    stand_ins.add("docker", TOP)


def test_up_creates_a_cluster_with_the_audit_policy_mounted(stand_ins: StandIns) -> None:
    """`kind create cluster` gets the name, our kubeconfig and a configuration that mounts policy and log."""
    cluster = up("ebb", "kind", lambda _: None)
    folder = folder_of("ebb")
    assert stand_ins.calls_of("kind") == [
        [
            *("create", "cluster", "--name", "ebb", "--config", str(folder / "kind.json")),
            *("--kubeconfig", str(folder / "admin.kubeconfig"), "--wait", "180s"),
        ]
    ]
    node = json.loads((folder / "kind.json").read_text())["nodes"][0]
    assert node["extraMounts"] == [{"hostPath": str(folder / "audit"), "containerPath": "/ebb"}]
    api_server, kubelet = (json.loads(patch) for patch in node["kubeadmConfigPatches"])
    assert api_server["apiServer"]["extraArgs"] == {
        "audit-policy-file": "/ebb/policy.json",
        "audit-log-path": "/ebb/audit.log",
        "audit-log-maxsize": "4096",
        "audit-log-mode": "blocking",
    }
    assert api_server["apiServer"]["extraVolumes"] == [
        {"name": "ebb-audit", "hostPath": "/ebb", "mountPath": "/ebb", "readOnly": False}
    ]
    assert kubelet["maxPods"] == 250
    assert json.loads((folder / "audit" / "policy.json").read_text())["kind"] == "Policy"
    assert cluster.audit_log == folder / "audit" / "audit.log"
    assert cluster.kubeconfig == folder / "admin.kubeconfig"


def test_an_image_is_loaded_once_per_content(stand_ins: StandIns, tmp_path: Path) -> None:
    """`kind load image-archive` runs for new content and not again for the same."""
    cluster = up("ebb", "kind", lambda _: None)
    first, second = tmp_path / "one.tar", tmp_path / "two.tar"
    write_archive(first, "a")
    write_archive(second, "b")
    for archive in (first, first, second):
        cluster.load_image(archive)
    assert stand_ins.calls_of("kind")[1:] == [
        ["load", "image-archive", str(archive), "--name", "ebb"] for archive in (first, second)
    ]


def test_down_deletes_the_cluster_and_its_folder(stand_ins: StandIns) -> None:
    """`kind delete cluster` gets the name and our kubeconfig, so the user's own is not touched."""
    up("ebb", "kind", lambda _: None)
    down("ebb", lambda _: None)
    kubeconfig = str(folder_of("ebb") / "admin.kubeconfig")
    assert stand_ins.calls_of("docker") == [["exec", "ebb-control-plane", "rm", "-f", "/ebb/audit.log"]]
    assert stand_ins.calls_of("kind")[-1] == [
        "delete",
        "cluster",
        "--name",
        "ebb",
        "--kubeconfig",
        kubeconfig,
    ]
    assert not folder_of("ebb").exists()


def test_a_process_is_found_by_the_name_the_kernel_keeps() -> None:
    """Processes are numbered as this machine does, and names longer than 15 characters are found too."""
    cluster = up("ebb", "kind", lambda _: None)
    assert cluster.pid_of("kubelet") == 412
    assert cluster.pid_of("kube-controller-manager") == 500
    with pytest.raises(ClusterError, match="no process etcd"):
        cluster.pid_of("etcd")


def test_an_identity_is_signed_by_the_cluster(stand_ins: StandIns) -> None:
    """The certificate comes from a signing request that is approved and removed; the second time from the file."""
    cluster = up("ebb", "kind", lambda _: None)
    path = cluster.identity("ebb-controller", ["testers"])
    steps = [call[2] for call in stand_ins.calls_of("kubectl") if call[2] != "get"]
    assert steps == ["create", "certificate", "delete", "config"]
    config = json.loads(path.read_text())
    assert config["clusters"][0]["cluster"]["server"] == "https://theirs"
    assert config["users"][0]["name"] == "ebb-controller"
    assert config["users"][0]["user"]["client-certificate-data"] == "Y2VydGlmaWNhdGU="
    before = len(stand_ins.calls)
    assert get_cluster("ebb").identity("ebb-controller", ["testers"]) == path
    assert all(call[:1] != ["kubectl"] or "create" not in call for call in stand_ins.calls[before:])


def test_a_failing_kind_says_why(stand_ins: StandIns) -> None:
    """What kind prints is what the person reads."""
    stand_ins.add("kind", "print('node image is missing', file=sys.stderr); sys.exit(1)")
    with pytest.raises(ClusterError, match=r"kind create cluster --name ebb.*node image is missing"):
        up("ebb", "kind", lambda _: None)


def write_archive(path: Path, content: str) -> None:
    config = json.dumps({"rootfs": {"diff_ids": [content]}}).encode()
    manifest = json.dumps([{"Config": "config.json", "RepoTags": ["ebb.local/x:1"], "Layers": []}]).encode()
    with tarfile.open(path, "w") as tar:
        for name, data in (("config.json", config), ("manifest.json", manifest)):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
