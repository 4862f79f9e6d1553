"""The reading commands against a real API server, as somebody who may get and list, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from apis.crd import render_crd
from apis.v1alpha1 import labels
from controller.cli.main import app
from e2e.cluster import binaries, control_plane
from unit.cli.objects import retirement

pytestmark = pytest.mark.control_plane

READER = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "reader"},
    "rules": [
        {"apiGroups": [labels.GROUP], "resources": [labels.PLURAL], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    ],
}
BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "reader"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}],
}
DEPLOYMENT = {
    "apiVersion": labels.API_VERSION,
    "kind": labels.KIND,
    "metadata": {"name": "chat", "namespace": "default"},
    "spec": {
        "model": {"name": "chat"},
        "engine": {"name": "vLLM"},
        "roles": [{"name": "server", "replicas": 1, "image": "example.com/engine:1"}],
    },
}


class Plane:
    """A control plane with the files that its kubectl is fed."""

    def __init__(self, folder: Path, running: Any) -> None:
        self.folder = folder
        self.running = running
        self.reader: Path = running.identity("reader", ())

    def apply(self, *objects: dict[str, Any]) -> None:
        path = self.folder / "objects.yaml"
        path.write_text(yaml.safe_dump_all(objects))
        self.running.kubectl("apply", "-f", str(path))

    def ebb(self, *arguments: str) -> tuple[int, str, str]:
        result = CliRunner().invoke(app, [*arguments, "--kubeconfig", str(self.reader)])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.stdout, result.stderr


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """An API server that does not know the CRD yet, and a user who may read."""
    if binaries.find("control-plane") is None and not os.environ.get("EBB_REQUIRE_CLUSTER"):
        pytest.skip("kube-apiserver and etcd are not built: make control-plane")
    folder = tmp_path_factory.mktemp("plane")
    with control_plane(folder / "cluster") as running:
        plane = Plane(folder, running)
        plane.apply(READER, BINDING)
        yield plane


def test_from_no_crd_to_a_retirement(plane: Plane) -> None:
    """Without the CRD, without the object, at rest, and while a replica leaves: each is told as it is."""
    code, _, err = plane.ebb("status")
    assert (code, err.endswith("install the CRD: ebb crd | kubectl apply -f -\n")) == (1, True), err

    plane.apply(yaml.safe_load(render_crd()))
    plane.running.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=20s")
    assert plane.ebb("status", "chat") == (
        1,
        "",
        "ebb: no ModelDeployment is called 'chat' in namespace 'default'\n",
    )

    plane.apply(DEPLOYMENT)
    code, out, _ = plane.ebb("status")
    assert code == 0
    assert out.splitlines()[0].startswith("default/chat  Unknown  vLLM  no endpoint yet  ")
    assert out.splitlines()[2].split() == ["server/0", "Missing:", "no", "Pod", "yet", "-", "-", "-"]

    operation = retirement(
        "Draining", inFlight=3, policy={**retirement("x")["policy"], "withoutRouter": "Hold"}
    )
    patch = plane.folder / "status.yaml"
    patch.write_text(yaml.safe_dump({"status": {"phase": "Ready", "retirement": operation}}))
    plane.running.kubectl(
        *("patch", "md", "chat", "--subresource=status", "--type=merge", f"--patch-file={patch}")
    )
    code, out, err = plane.ebb("why", "chat", "-A")
    assert code == 0, err
    assert out.startswith("default/chat: server/1 is leaving (ReplicasReduced): Draining\n")
    assert "in flight  not read yet" in out


def test_what_the_user_may_not_do_is_the_servers_sentence(plane: Plane) -> None:
    """Somebody without rights gets the API server's own words."""
    stranger = plane.running.identity("stranger", ())
    result = CliRunner().invoke(app, ["status", "--kubeconfig", str(stranger)])
    assert result.exit_code == 1
    assert 'User "stranger" cannot list resource "modeldeployments"' in result.stderr
