"""A sample engine as a process of this machine, and what its log says."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 20.0

VLLM = ("vllm", "serve", "tiny", "--host", "127.0.0.1", "--port", "0")
SGLANG = ("sglang", "--model-path", "tiny", "--host", "127.0.0.1", "--port", "0", "--enable-metrics")


class EngineProcess:
    """Started on a free port; its events are those of its own log, in order."""

    def __init__(self, *arguments: str, faults: dict[str, Any] | None = None, **environment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "e2e.engine", *arguments],
            cwd=ROOT,
            env=os.environ
            | {"SAMPLE_ENGINE_NAME": "pod-0", "SAMPLE_ENGINE_FAULTS": json.dumps(faults or {})}
            | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.events: list[dict[str, Any]] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._scheme = "http"
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def port(self) -> int:
        return int(self.wait_event("ready")["port"])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait_event(self, name: str, *, seconds: float = PATIENCE) -> dict[str, Any]:
        """The first event of that name, waited for."""
        until = time.monotonic() + seconds
        while True:
            found = next((event for event in self.events if event["event"] == name), None)
            if found is not None:
                return found
            try:
                line = self._lines.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no {name} within {seconds:g} s; seen {self.events}") from None
            if line is None:
                raise AssertionError(f"the engine ended without {name}; seen {self.events}")
            self.events.append(json.loads(line))

    def wait(self) -> int:
        """The exit code, when it has ended."""
        code = self._process.wait(timeout=PATIENCE)
        while (line := self._lines.get(timeout=PATIENCE)) is not None:
            self.events.append(json.loads(line))
        return code

    def complaint(self) -> str:
        """What a process that has ended wrote to standard error."""
        assert self._process.stderr is not None
        return self._process.stderr.read()

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def get(self, path: str, *, timeout: float = PATIENCE) -> str:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=timeout) as answer:
            return str(answer.read().decode())

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(f"{self.url}{path}", data=json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            parsed: dict[str, Any] = json.loads(answer.read())
        return parsed

    def gauge(self, name: str) -> float:
        """The sum over a gauge's series."""
        lines = [line for line in self.get("/metrics").splitlines() if line.startswith(name + "{")]
        assert lines, f"/metrics has no {name}"
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                self._lines.put(line)
        except ValueError:
            pass  # Closed under the reader by `end`.
        self._lines.put(None)


@contextmanager
def engine(
    *arguments: str, faults: dict[str, Any] | None = None, **environment: str
) -> Iterator[EngineProcess]:
    """A running engine, gone at the end of the block."""
    process = EngineProcess(*arguments, faults=faults, **environment)
    try:
        yield process
    finally:
        process.end()
