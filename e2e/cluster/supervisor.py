"""Starts the programs of a plan in their order, starts them again when they end, and dies with its owner.

A program of its own (standard library only), so that a cluster outlives the command that started it, yet never a
command that was killed half-way: the owner holds the writing end of standard input. Until it has said
`detach`, the end of that pipe means that the owner is gone, and every program is killed at once.

Commands, one a line: `detach`, `stop NAME` (kill it and keep it down), `start NAME`.

The plan (JSON): `log_directory`, `events` (a file to which one JSON object per line is appended: `program`,
`event` = started|ready|exited, `pid`, `seconds` since the start, `status`), and `programs`: each with `name`,
`argv`, `env` (added to the environment), `after` (names that must be ready first) and `ready`, one of
`{"url", "ca", "certificate", "key"}` (GET answers 200), `{"socket"}` (a Unix socket accepts), or null.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

RESTART_SECONDS = 1.0
CHECK_TIMEOUT_SECONDS = 2.0


def is_ready(check: dict[str, str] | None) -> bool:
    """Whether the readiness check passes now. Only the status code counts: an error body may contain "ok"."""
    if check is None:
        return True
    try:
        if "socket" in check:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(CHECK_TIMEOUT_SECONDS)
                connection.connect(check["socket"])
            return True
        context = None
        if check["url"].startswith("https:"):
            context = ssl.create_default_context(cafile=check["ca"])
            context.load_cert_chain(check["certificate"], check["key"])
        with urllib.request.urlopen(check["url"], timeout=CHECK_TIMEOUT_SECONDS, context=context) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


class Supervisor:
    """Keeps every program of `plan` running; one thread per program."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.programs: list[dict[str, Any]] = plan["programs"]
        self.logs = Path(plan["log_directory"])
        self.logs.mkdir(parents=True, exist_ok=True)
        self.events = open(plan["events"], "a", buffering=1)  # noqa: SIM115, PTH123
        self.began = time.monotonic()
        self.ready = {program["name"]: threading.Event() for program in self.programs}
        self.wanted = {program["name"]: threading.Event() for program in self.programs}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.lock = threading.Lock()
        self.ending = False

    def start(self) -> None:
        for program in self.programs:
            self.wanted[program["name"]].set()
            threading.Thread(target=self._keep, args=(program,), daemon=True).start()

    def stop(self, name: str) -> None:
        with self.lock:
            self.wanted[name].clear()
            self.ready[name].clear()
            if name in self.processes:
                self.processes[name].kill()

    def resume(self, name: str) -> None:
        self.wanted[name].set()

    def kill_all(self) -> None:
        with self.lock:
            self.ending = True
            for process in self.processes.values():
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
        for process in self.processes.values():
            process.wait()

    def _keep(self, program: dict[str, Any]) -> None:
        name = program["name"]
        for other in program["after"]:
            self.ready[other].wait()
        while True:
            self.wanted[name].wait()
            with self.lock:
                if self.ending:
                    return
                process = self._spawn(program)
                self.processes[name] = process
            self._report(name, "started", pid=process.pid)
            pause = 0.02
            while process.poll() is None and not is_ready(program["ready"]):
                time.sleep(pause)
                pause = min(pause * 1.5, 0.2)
            if process.poll() is None:
                self.ready[name].set()
                self._report(name, "ready", pid=process.pid)
            status = process.wait()
            self._report(name, "exited", pid=process.pid, status=status)
            if self.wanted[name].is_set():
                time.sleep(RESTART_SECONDS)

    def _spawn(self, program: dict[str, Any]) -> subprocess.Popen[bytes]:
        with open(self.logs / f"{program['name']}.log", "ab") as log:  # noqa: PTH123
            return subprocess.Popen(
                program["argv"],
                env={**os.environ, **program["env"]},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _report(self, name: str, event: str, **facts: int) -> None:
        seconds = round(time.monotonic() - self.began, 2)
        line = json.dumps({"program": name, "event": event, "seconds": seconds, **facts})
        self.events.write(line + "\n")


def main() -> int:
    # Ctrl-C in the owner's terminal reaches the owner, which decides; this process follows the pipe alone.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    supervisor = Supervisor(json.loads(Path(sys.argv[1]).read_text()))
    supervisor.start()
    detached = False
    for line in sys.stdin:
        command, _, name = line.strip().partition(" ")
        if command == "detach":
            detached = True
        elif command == "stop":
            supervisor.stop(name)
        elif command == "start":
            supervisor.resume(name)
    if detached:
        threading.Event().wait()
    supervisor.kill_all()
    return 0


if __name__ == "__main__":
    sys.exit(main())
