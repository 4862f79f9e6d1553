"""What a suite may ask of a cluster, whoever provides it."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from .errors import ClusterError


class Kubectl:
    """The cluster's own kubectl, with one kubeconfig; keeps its discovery cache beside it."""

    def __init__(self, program: Path, kubeconfig: Path, context: str | None = None) -> None:
        self.program = program
        self.kubeconfig = kubeconfig
        self.context = context

    def command(self, *args: str) -> list[str]:
        context = [] if self.context is None else [f"--context={self.context}"]
        cache = self.kubeconfig.parent / "kubectl-cache"
        return [str(self.program), f"--kubeconfig={self.kubeconfig}", f"--cache-dir={cache}", *context, *args]

    def __call__(self, *args: str, stdin: str | None = None, timeout: float = 60, check: bool = True) -> str:
        """Standard output of `kubectl ARGS`; with `check`, `ClusterError` when it fails or outlasts `timeout` s."""
        try:
            answer = subprocess.run(
                self.command(*args),
                input=stdin,
                stdin=subprocess.DEVNULL if stdin is None else None,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ClusterError(f"kubectl {' '.join(args)}: no answer within {timeout:.0f} s") from None
        if check and answer.returncode != 0:
            raise ClusterError(f"kubectl {' '.join(args)}: {answer.stderr.strip() or answer.stdout.strip()}")
        return answer.stdout


class Cluster(ABC):
    """A running cluster."""

    name: str
    kubeconfig: Path
    """The admin's."""
    audit_log: Path | None
    """One JSON event per line, written before the answer goes out; None where the cluster keeps none for us."""
    node_address: str
    """Where the node is reached from this machine."""

    @property
    @abstractmethod
    def kubectl_program(self) -> Path:
        """The cluster's own kubectl, for what goes on beside the caller (`port-forward`, `logs --follow`)."""

    @abstractmethod
    def kubectl(self, *args: str, stdin: str | None = None, timeout: float = 60, check: bool = True) -> str:
        """Run the cluster's own kubectl as the admin; see `Kubectl`."""

    @abstractmethod
    def load_image(self, archive: Path) -> None:
        """Make the image of a Docker-style archive available to Pods; does nothing when it is there already."""

    @abstractmethod
    def identity(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig with a client certificate of its own for `user`; the same one for the same arguments."""

    @abstractmethod
    def pid_of(self, component: str) -> int:
        """The process, as this machine numbers it, of `kubelet`, `containerd`, `kube-apiserver` and so on."""
