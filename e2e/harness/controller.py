"""A controller as a process of this machine, with its own identity, that a test may kill like any other."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from e2e.cluster import Cluster

ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    """A port of the loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class ControllerProcess:
    """`python -m controller run` against a kubeconfig of the controller's own user."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        user: str,
        namespace: str,
        log: Path,
        port: int,
        lease_namespace: str | None = None,
    ) -> None:
        """`lease_namespace`: where the Lease is that it must hold to act; it needs none when None."""
        self._cluster = cluster
        self._user = user
        self._namespace = namespace
        self._log = log
        self._port = port
        self._lease_namespace = lease_namespace
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the controller does not run")
        return self._process.pid

    def start(self, *, seconds: float = 60.0) -> None:
        """Start and wait until it is ready; its log is appended to."""
        kubeconfig = self._cluster.identity(self._user)
        lease = self._lease_namespace
        election = [] if lease is None else ["--leader-elect", "--lease-namespace", lease]
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "controller", "run"),
                    *("--kubeconfig", str(kubeconfig), "--bind", f"127.0.0.1:{self._port}"),
                    *("--log-format", "json", "--log-level", "debug"),
                    *("--namespace", self._namespace, *election),
                ],
                stdout=out,
                stderr=out,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
        until = time.monotonic() + seconds
        while not self.ready():
            if self._process.poll() is not None or time.monotonic() > until:
                tail = self._log.read_text(errors="replace")[-2000:]
                raise AssertionError(f"the controller was not ready within {seconds:g} s:\n{tail}")
            time.sleep(0.1)

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def leads(self) -> bool:
        """Whether it says that it may act."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=2) as answer:
            return b"\nebb_leader 1.0\n" in answer.read()

    def suspend(self) -> None:
        """SIGSTOP: it notices nothing, and nothing of it ends."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def wait(self, *, seconds: float) -> int:
        """Wait until it has ended by itself; its exit code."""
        if self._process is None:
            raise RuntimeError("the controller does not run")
        code = self._process.wait(timeout=seconds)
        self._process = None
        return code

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nothing is said goodbye to."""
        self._end(signal.SIGKILL)

    def stop(self, *, seconds: float = 30.0) -> int | None:
        """SIGTERM and wait; returns the exit code, None when it did not run."""
        return self._end(signal.SIGTERM, seconds=seconds)

    def _end(self, number: int, *, seconds: float = 30.0) -> int | None:
        if self._process is None:
            return None
        process, self._process = self._process, None
        process.send_signal(number)
        try:
            return process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(
                f"the controller did not end within {seconds:g} s of signal {number}"
            ) from None
