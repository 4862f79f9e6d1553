"""What the programs of a control plane and a node are started with."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from e2e.cluster.control_plane_programs import (
    ControlPlaneSpec,
    Program,
    audit_policy,
    etcd,
    kube_apiserver,
    kube_controller_manager,
    kube_scheduler,
)
from e2e.cluster.node_programs import (
    NodeSpec,
    cni_config,
    containerd_config,
    corefile,
    kube_proxy_config,
    kubelet_config,
    node_programs,
    write_node_files,
)
from e2e.cluster.pki import Authority

SPEC = ControlPlaneSpec(
    directory=Path("/c/ebb"), binaries=Path("/bin/k8s"), address="198.51.100.2", bind="0.0.0.0"
)
NODE = NodeSpec(
    control_plane=SPEC,
    node_name="ebb-node",
    pod_cidr="10.213.0.0/23",
    cgroup="/ebb0-aa",
    cni_plugins=Path("/usr/lib/cni"),
    containerd="/usr/bin/containerd",
    environment={"PATH": "/usr/bin"},
    sandbox_image="ebb.local/sandbox:1",
)


def flags(program: Program) -> dict[str, str]:
    return {name: value for name, _, value in (word.partition("=") for word in program.argv[1:])}


def all_programs() -> list[Program]:
    control_plane = [etcd(SPEC), kube_apiserver(SPEC), kube_controller_manager(SPEC), kube_scheduler(SPEC)]
    return [*control_plane, *node_programs(NODE)]


def test_what_needs_the_api_server_waits_until_it_is_ready() -> None:
    """containerd and etcd start at once, the API server after etcd, everything else after the API server."""
    assert {program.name: list(program.after) for program in all_programs()} == {
        "etcd": [],
        "containerd": [],
        "kube-apiserver": ["etcd"],
        "kube-controller-manager": ["kube-apiserver"],
        "kube-scheduler": ["kube-apiserver"],
        "kubelet": ["kube-apiserver", "containerd"],
        "kube-proxy": ["kube-apiserver"],
        "coredns": ["kube-apiserver"],
    }


def test_whatever_others_wait_for_says_when_it_is_ready() -> None:
    """Every program that another one waits for has a check; the API server's is asked with a client certificate."""
    checks = {program.name: program.ready for program in all_programs()}
    for program in all_programs():
        assert all(checks[name] is not None for name in program.after)
    assert checks["kube-apiserver"] == {
        "url": "https://198.51.100.2:6443/readyz",
        "ca": "/c/ebb/pki/ca.crt",
        "certificate": "/c/ebb/pki/admin.crt",
        "key": "/c/ebb/pki/admin.key",
    }


def test_the_api_server_of_a_node() -> None:
    """Node and RBAC authorization, an audit log that is written before the answer, kubelets by address."""
    given = flags(kube_apiserver(SPEC))
    assert given["--authorization-mode"] == "Node,RBAC"
    assert given["--audit-log-mode"] == "blocking"
    assert given["--audit-log-path"] == "/c/ebb/audit.log"
    assert given["--kubelet-preferred-address-types"] == "InternalIP"
    assert given["--kubelet-certificate-authority"] == "/c/ebb/pki/ca.crt"
    assert given["--advertise-address"] == "198.51.100.2"
    assert "--disable-admission-plugins" not in given


def test_the_api_server_alone() -> None:
    """Without nodes Pods need no service account and the server registers no endpoint on loopback."""
    alone = ControlPlaneSpec(
        directory=Path("/d"),
        binaries=Path("/b"),
        address="127.0.0.1",
        bind="127.0.0.1",
        port=7,
        with_nodes=False,
    )
    given = flags(kube_apiserver(alone))
    assert given["--disable-admission-plugins"] == "ServiceAccount"
    assert given["--endpoint-reconciler-type"] == "none"
    assert given["--bind-address"] == "127.0.0.1"
    assert given["--secure-port"] == "7"


def level(
    verb: str, resource: str, *, group: str = "", user: str = "somebody", groups: tuple[str, ...] = ()
) -> str:
    """The level of the first rule that matches, as the API server reads a policy."""
    for rule in audit_policy()["rules"]:
        if "nonResourceURLs" in rule:
            continue
        resources = [(row["group"], name) for row in rule.get("resources", []) for name in row["resources"]]
        if (
            ("users" not in rule or user in rule["users"])
            and ("userGroups" not in rule or set(groups) & set(rule["userGroups"]))
            and ("verbs" not in rule or verb in rule["verbs"])
            and (not resources or (group, resource) in resources)
        ):
            return str(rule["level"])
    return "None"


@pytest.mark.parametrize(
    ("verb", "resource", "group", "expected"),
    [
        ("delete", "pods", "", "Request"),
        ("patch", "services", "", "Request"),
        ("create", "pods/eviction", "", "Request"),
        ("patch", "modeldeployments/status", "ebb.dev", "Request"),
        ("patch", "modeldeployments", "ebb.dev", "Request"),
        ("update", "workloads", "kueue.x-k8s.io", "Request"),
        ("get", "pods/exec", "", "Metadata"),
        ("create", "pods/exec", "", "Metadata"),
        ("update", "leases", "coordination.k8s.io", "Metadata"),
        ("patch", "deployments", "apps", "Metadata"),
        ("list", "pods", "", "Request"),
    ],
)
def test_audit_level_of_what_a_controller_does(verb: str, resource: str, group: str, expected: str) -> None:
    """Bodies are kept where UID preconditions stand, metadata of everything else, nothing is left out."""
    assert level(verb, resource, group=group) == expected


def test_audit_keeps_the_writes_of_the_clusters_own_components() -> None:
    """Reads by kubelets and control plane are left out; what they write is kept."""
    assert level("list", "pods", user="system:node:n", groups=("system:nodes",)) == "None"
    assert level("watch", "nodes", user="system:kube-scheduler") == "None"
    assert level("get", "pods", groups=("system:serviceaccounts:kube-system",)) == "None"
    assert level("delete", "pods", user="system:node:n", groups=("system:nodes",)) == "Request"


def test_containerd_keeps_to_the_nodes_own_places() -> None:
    """Its root is in the cluster's folder, socket and state in the node's own /run, and runc may not lower scores."""
    config = tomllib.loads(containerd_config(NODE))
    cri = config["plugins"]["io.containerd.grpc.v1.cri"]
    assert config["root"] == "/c/ebb/containerd"
    assert config["state"].startswith("/run/")
    assert config["grpc"]["address"] == "/run/containerd/containerd.sock"
    assert cri["sandbox_image"] == "ebb.local/sandbox:1"
    assert cri["restrict_oom_score_adj"] is True
    assert cri["cni"] == {"bin_dir": "/usr/lib/cni", "conf_dir": "/c/ebb/cni"}
    assert cri["containerd"]["runtimes"]["runc"]["options"] == {"SystemdCgroup": False}


def test_the_kubelet_never_evicts_and_never_collects_images() -> None:
    """Imported images cannot be pulled again, so no threshold of disk or memory may ever be met."""
    config = kubelet_config(NODE)
    assert set(config["evictionHard"].values()) == {"0%"}
    assert config["imageGCHighThresholdPercent"] == 100
    assert config["maxPods"] == 250
    assert config["failCgroupV1"] is False
    assert config["cgroupDriver"] == "cgroupfs"
    assert config["cgroupRoot"] == "/ebb0-aa"
    assert config["clusterDNS"] == ["198.51.100.2"]


def test_kube_proxy_leaves_the_machines_conntrack_alone() -> None:
    """nftables mode, and every conntrack setting is 0: they are not the node's own."""
    config = kube_proxy_config(NODE)
    assert config["mode"] == "nftables"
    assert set(config["conntrack"].values()) == {0, "0s"}
    assert config["clusterCIDR"] == "10.213.0.0/23"


def test_pods_are_routed_and_names_are_answered() -> None:
    """Each Pod has a routed link from the node's network, and CoreDNS answers the cluster's names without a cache."""
    (plugin,) = cni_config(NODE)["plugins"]
    assert plugin["type"] == "ptp"
    assert plugin["ipam"]["ranges"] == [[{"subnet": "10.213.0.0/23"}]]
    assert "kubernetes cluster.local in-addr.arpa" in corefile(NODE)
    assert "cache" not in corefile(NODE)


def test_every_file_a_node_program_is_started_with_is_written(tmp_path: Path) -> None:
    """The command lines name no file that is not there."""
    control_plane = ControlPlaneSpec(
        directory=tmp_path, binaries=Path("/b"), address="198.51.100.2", bind="0.0.0.0"
    )
    (tmp_path / "pki").mkdir()
    Authority.create(tmp_path / "pki")
    spec = NodeSpec(**{**vars(NODE), "control_plane": control_plane})
    write_node_files(spec)
    words = [word.rpartition("=")[2] for program in node_programs(spec) for word in program.argv]
    named = [Path(word) for word in words if word.startswith(str(tmp_path))]
    assert len(named) >= 5
    assert [path for path in named if not path.exists()] == []
