"""A cluster that somebody else runs. It is only ever used by the context that was named; `down` leaves it alone."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from . import binaries
from .base import Cluster, Kubectl
from .errors import ClusterError
from .files import Progress, write_atomically
from .foreign import node_address, signed_identity
from .state import State, folder_of, write_state


@dataclass(frozen=True)
class ExistingCluster(Cluster):
    """A context of the user's kubeconfig, copied so that nothing else in there can be touched by mistake."""

    name: str
    kubeconfig: Path
    node_address: str
    program: Path
    audit_log: Path | None = None

    @property
    def kubectl_program(self) -> Path:
        return self.program

    def kubectl(self, *args: str, stdin: str | None = None, timeout: float = 60, check: bool = True) -> str:
        return Kubectl(self.program, self.kubeconfig)(*args, stdin=stdin, timeout=timeout, check=check)

    def load_image(self, archive: Path) -> None:
        raise ClusterError(
            f"--provider existing cannot load {archive.name}: push the image to a registry that cluster pulls from"
        )

    def identity(self, user: str, groups: Sequence[str] = ()) -> Path:
        kubectl = Kubectl(self.program, self.kubeconfig)
        return signed_identity(kubectl, self.kubeconfig.parent / "identities", user, groups)

    def pid_of(self, component: str) -> int:
        raise ClusterError(f"--provider existing: {component} does not run on this machine")


def up(name: str, context: str | None, progress: Progress) -> ExistingCluster:
    """Remember the context; refuses one that was not named, since the current one may be anybody's production."""
    if context is None:
        raise ClusterError(
            "--provider existing needs --context NAME: the current context of a kubeconfig is never used unasked"
        )
    built = binaries.ensure("control-plane", progress)
    folder = folder_of(name)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "admin.kubeconfig", user_kubeconfig(built / "kubectl", context), mode=0o600)
    write_state(name, State(provider="existing", phase="running", context=context))
    cluster = find(name, State(provider="existing", phase="running", context=context))
    progress(f"cluster {name} is the context {context}: KUBECONFIG={cluster.kubeconfig}")
    return cluster


def find(name: str, state: State) -> ExistingCluster:
    built = binaries.find("control-plane")
    if built is None:
        raise ClusterError(
            "the cluster's own kubectl is not built: python -m e2e.cluster build control-plane"
        )
    kubeconfig = folder_of(name) / "admin.kubeconfig"
    address = node_address(Kubectl(built / "kubectl", kubeconfig, state.context))
    return ExistingCluster(name, kubeconfig, address, built / "kubectl")


def down(name: str) -> None:
    shutil.rmtree(folder_of(name), ignore_errors=True)


def user_kubeconfig(program: Path, context: str) -> str:
    """The user's kubeconfig reduced to one context."""
    command = [str(program), "config", "view", "--raw", "--minify", "--flatten", f"--context={context}"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise ClusterError(f"context {context}: {answer.stderr.strip()}")
    return answer.stdout
