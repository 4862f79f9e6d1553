"""etcd and the API server alone, on loopback and without root: all that a test of the API needs."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from . import binaries
from .base import Kubectl
from .control_plane_programs import (
    ControlPlaneSpec,
    etcd,
    kube_apiserver,
    kube_controller_manager,
    write_control_plane_files,
    write_kubeconfig,
)
from .errors import ClusterError
from .events import Events
from .files import Progress, write_atomically
from .pki import identity_file

READY_SECONDS: Final = 60.0
SUPERVISOR: Final = Path(__file__).with_name("supervisor.py")


def quiet(line: str) -> None:
    """Tells nobody."""
    del line


class ControlPlane:
    """A running API server. Its programs start again when they end, unless `stop` was called."""

    def __init__(
        self, spec: ControlPlaneSpec, supervisor: subprocess.Popen[bytes], names: Sequence[str]
    ) -> None:
        self.spec = spec
        self.kubeconfig = spec.admin_kubeconfig
        self.audit_log = spec.audit_log
        self.server = spec.server
        self._supervisor = supervisor
        self._names = names
        self._events = Events(spec.directory / "events.jsonl", quiet)

    def kubectl(self, *args: str, stdin: str | None = None, timeout: float = 60, check: bool = True) -> str:
        """Run kubectl as the admin; see `Kubectl`."""
        run = Kubectl(self.spec.binaries / "kubectl", self.kubeconfig)
        return run(*args, stdin=stdin, timeout=timeout, check=check)

    def identity(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig with a client certificate of its own for `user`; the same one for the same arguments."""
        path = identity_file(self.spec.directory / "identities", user, groups)
        return path if path.exists() else write_kubeconfig(self.spec, path, user=user, groups=groups)

    def pid_of(self, component: str) -> int:
        """The latest process of `etcd`, `kube-apiserver` or `kube-controller-manager`."""
        self._events.read()
        return self._events.pids[component]

    def stop(self, component: str) -> None:
        """Kill a program and keep it down; returns when it has ended."""
        self._tell(f"stop {component}")
        self._wait(lambda: component in self._events.ended, f"{component} to end")

    def start(self, component: str) -> None:
        """Start a stopped program; returns when it is ready."""
        self._tell(f"start {component}")
        self._wait(lambda: component in self._events.ready, f"{component} to be ready")

    def wait_until_ready(self) -> None:
        """Until every program is ready; `ClusterError` with the ends of their logs when that takes too long."""
        self._wait(lambda: self._events.ready.issuperset(self._names), "the control plane to be ready")

    def _tell(self, line: str) -> None:
        self._events.read()
        assert self._supervisor.stdin is not None
        self._supervisor.stdin.write(f"{line}\n".encode())
        self._supervisor.stdin.flush()

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while True:
            self._events.read()
            if condition():
                return
            if self._supervisor.poll() is not None or time.monotonic() > deadline:
                tails = self._events.tails(self.spec.directory / "logs", self._names)
                raise ClusterError(f"waited {READY_SECONDS:.0f} s for {what}\n{tails}")
            time.sleep(0.05)


@contextmanager
def control_plane(
    folder: Path, *, controller_manager: bool = False, progress: Progress = quiet
) -> Iterator[ControlPlane]:
    """A control plane of its own below `folder` (empty, and the caller's to remove), ready within seconds.

    Pods can be written without service accounts, and nothing runs them. With `controller_manager` namespaces
    empty themselves and owned objects are collected; it costs CPU, so it is off unless asked for.
    """
    built = binaries.ensure("control-plane", progress)
    port, etcd_port, etcd_peer_port = free_ports(3)
    spec = ControlPlaneSpec(
        directory=folder.absolute(),
        binaries=built,
        address="127.0.0.1",
        bind="127.0.0.1",
        port=port,
        etcd_port=etcd_port,
        etcd_peer_port=etcd_peer_port,
        with_nodes=False,
    )
    write_control_plane_files(spec)
    programs = [etcd(spec), kube_apiserver(spec)]
    if controller_manager:
        programs.append(kube_controller_manager(spec))
    plan = {
        "log_directory": str(spec.directory / "logs"),
        "events": str(spec.directory / "events.jsonl"),
        "programs": [program.as_plan() for program in programs],
    }
    plan_file = spec.directory / "plan.json"
    write_atomically(plan_file, json.dumps(plan, indent=1))
    # The supervisor holds the reading end of a pipe from here: it ends with this process, however that ends.
    supervisor = subprocess.Popen(
        [sys.executable, str(SUPERVISOR), str(plan_file)],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        running = ControlPlane(spec, supervisor, [program.name for program in programs])
        running.wait_until_ready()
        yield running
    finally:
        assert supervisor.stdin is not None
        supervisor.stdin.close()
        supervisor.wait()


def free_ports(count: int) -> list[int]:
    """Distinct loopback ports that nobody listens on now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
