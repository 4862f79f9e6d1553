"""A cluster in Docker by `kind`. Tested through stand-ins that record its command lines; see README.md."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import binaries, image_archive
from .base import Cluster, Kubectl
from .control_plane_programs import audit_policy
from .errors import ClusterError
from .files import Progress, write_atomically
from .foreign import node_address, signed_identity
from .state import State, folder_of, write_state

INSIDE = "/ebb"
"""Where the folder with policy and log is mounted, in the node's container and in the API server's Pod."""


@dataclass(frozen=True)
class KindCluster(Cluster):
    """A running kind cluster of one node."""

    name: str
    kubeconfig: Path
    audit_log: Path | None
    node_address: str
    program: Path

    @property
    def kubectl_program(self) -> Path:
        return self.program

    def kubectl(self, *args: str, stdin: str | None = None, timeout: float = 60, check: bool = True) -> str:
        return Kubectl(self.program, self.kubeconfig)(*args, stdin=stdin, timeout=timeout, check=check)

    def load_image(self, archive: Path) -> None:
        marker = self.kubeconfig.parent / "images" / image_archive.identity(archive)
        if not marker.exists():
            _run("kind", "load", "image-archive", str(archive), "--name", self.name)
            marker.parent.mkdir(exist_ok=True)
            marker.touch()

    def identity(self, user: str, groups: Sequence[str] = ()) -> Path:
        kubectl = Kubectl(self.program, self.kubeconfig)
        return signed_identity(kubectl, self.kubeconfig.parent / "identities", user, groups)

    def pid_of(self, component: str) -> int:
        rows = _run("docker", "top", _node(self.name), "-eo", "pid,comm").splitlines()[1:]
        for row in rows:
            pid, _, command = row.strip().partition(" ")
            # The kernel keeps 15 characters of a name.
            if command.strip() == component[:15]:
                return int(pid)
        raise ClusterError(f"no process {component} on the node of cluster {self.name}")


def up(name: str, progress: Progress) -> KindCluster:
    folder = folder_of(name)
    binaries.ensure("control-plane", progress)
    (folder / "audit").mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "audit" / "policy.json", json.dumps(audit_policy(), indent=1))
    write_atomically(folder / "kind.json", json.dumps(configuration(folder / "audit"), indent=1))
    write_state(name, State(provider="kind", phase="starting"))
    progress(f"kind create cluster --name {name}")
    _run(
        *("kind", "create", "cluster", "--name", name),
        *("--config", str(folder / "kind.json"), "--kubeconfig", str(folder / "admin.kubeconfig")),
        *("--wait", "180s"),
    )
    write_state(name, State(provider="kind", phase="running"))
    cluster = find(name)
    progress(f"cluster {name} is ready: KUBECONFIG={cluster.kubeconfig}")
    return cluster


def find(name: str) -> KindCluster:
    folder = folder_of(name)
    built = binaries.find("control-plane")
    if built is None:
        raise ClusterError(
            "the cluster's own kubectl is not built: python -m e2e.cluster build control-plane"
        )
    kubeconfig = folder / "admin.kubeconfig"
    address = node_address(Kubectl(built / "kubectl", kubeconfig))
    return KindCluster(name, kubeconfig, folder / "audit" / "audit.log", address, built / "kubectl")


def is_alive(name: str) -> bool:
    return name in _run("kind", "get", "clusters").split()


def down(name: str) -> None:
    folder = folder_of(name)
    # The log belongs to the container's root, so for a user who is not root only the container can remove it.
    with suppress(ClusterError):
        _run("docker", "exec", _node(name), "rm", "-f", f"{INSIDE}/audit.log")
    _run("kind", "delete", "cluster", "--name", name, "--kubeconfig", str(folder / "admin.kubeconfig"))
    shutil.rmtree(folder, ignore_errors=True)


def configuration(audit_folder: Path) -> dict[str, Any]:
    """kind's configuration: one node, the audit policy mounted, the kubelet as on a local node."""
    cluster = {
        "kind": "ClusterConfiguration",
        "apiServer": {
            "extraArgs": {
                "audit-policy-file": f"{INSIDE}/policy.json",
                "audit-log-path": f"{INSIDE}/audit.log",
                "audit-log-maxsize": "4096",
                "audit-log-mode": "blocking",
            },
            "extraVolumes": [
                {"name": "ebb-audit", "hostPath": INSIDE, "mountPath": INSIDE, "readOnly": False}
            ],
        },
    }
    kubelet = {"kind": "KubeletConfiguration", "maxPods": 250, "imageGCHighThresholdPercent": 100}
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "nodes": [
            {
                "role": "control-plane",
                "extraMounts": [{"hostPath": str(audit_folder), "containerPath": INSIDE}],
                "kubeadmConfigPatches": [json.dumps(cluster), json.dumps(kubelet)],
            }
        ],
    }


def _node(name: str) -> str:
    return f"{name}-control-plane"


def _run(*command: str) -> str:
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ClusterError(f"{command[0]} is not on PATH") from None
    if answer.returncode != 0:
        raise ClusterError(f"{' '.join(command)}: {answer.stderr.strip()}")
    return answer.stdout
