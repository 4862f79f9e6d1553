"""The supervisor as a real process that keeps real processes; time is the subject here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster import supervisor as module
from e2e.cluster.host import start_ticks, wait_until

LISTEN = "import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); time.sleep(600)"

Start = Callable[[Sequence[dict[str, Any]]], subprocess.Popen[str]]


def program(name: str, argv: Sequence[str], **more: Any) -> dict[str, Any]:
    return {"name": name, "argv": list(argv), "env": {}, "after": [], "ready": None, **more}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the supervisor with these programs; whatever they are, none survives the test."""
    running: list[subprocess.Popen[str]] = []

    def start(programs: Sequence[dict[str, Any]]) -> subprocess.Popen[str]:
        plan = tmp_path / "plan.json"
        places = {"log_directory": str(tmp_path / "logs"), "events": str(tmp_path / "events.jsonl")}
        plan.write_text(json.dumps({**places, "programs": programs}))
        command = [sys.executable, str(Path(module.__file__)), str(plan)]
        running.append(subprocess.Popen(command, stdin=subprocess.PIPE, text=True))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()
    for event in events(tmp_path):
        if event["event"] == "started" and start_ticks(event["pid"]) is not None:
            os.kill(event["pid"], signal.SIGKILL)


def events(folder: Path) -> list[dict[str, Any]]:
    path = folder / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def happened(folder: Path, event: str, name: str, *, times: int = 1) -> bool:
    """Whether it happened that often within 20 s."""

    def count() -> int:
        return sum(1 for row in events(folder) if (row["event"], row["program"]) == (event, name))

    return wait_until(lambda: count() >= times, timeout=20, pause=0.02)


def tell(supervisor: subprocess.Popen[str], line: str) -> None:
    assert supervisor.stdin is not None
    supervisor.stdin.write(line + "\n")
    supervisor.stdin.flush()


def pids(folder: Path) -> list[int]:
    return [row["pid"] for row in events(folder) if row["event"] == "started"]


def test_a_program_starts_when_those_before_it_are_ready(start: Start, tmp_path: Path) -> None:
    """`after` waits for readiness, not for the start."""
    socket_path = str(tmp_path / "s")
    late = "import time; time.sleep(0.3); " + LISTEN
    first = program("first", [sys.executable, "-c", late, socket_path], ready={"socket": socket_path})
    start([program("second", ["sleep", "600"], after=["first"]), first])
    assert happened(tmp_path, "ready", "second")
    order = [(row["program"], row["event"]) for row in events(tmp_path)]
    assert order == [("first", "started"), ("first", "ready"), ("second", "started"), ("second", "ready")]


def test_a_program_that_ends_starts_again(start: Start, tmp_path: Path) -> None:
    """As on any node, and its output goes on in the same log."""
    start([program("once", ["sh", "-c", "echo hello $GREETED; exit 3"], env={"GREETED": "you"})])
    assert happened(tmp_path, "exited", "once", times=2)
    statuses = [row["status"] for row in events(tmp_path) if row["event"] == "exited"]
    assert statuses[:2] == [3, 3]
    assert (tmp_path / "logs" / "once.log").read_text().startswith("hello you\nhello you\n")


@pytest.mark.parametrize("how", ["close", "ctrl-c"])
def test_everything_ends_with_an_owner_that_did_not_detach(start: Start, tmp_path: Path, how: str) -> None:
    """When the pipe closes, as it does when the owner is killed, no program is left."""
    supervisor = start([program("one", ["sleep", "600"]), program("two", ["sleep", "600"])])
    assert happened(tmp_path, "ready", "one")
    assert happened(tmp_path, "ready", "two")
    assert supervisor.stdin is not None
    if how == "ctrl-c":
        # Ctrl-C reaches the whole group of a terminal; the supervisor leaves the decision to its owner.
        supervisor.send_signal(signal.SIGINT)
    supervisor.stdin.close()
    assert supervisor.wait(timeout=10) == 0
    assert [pid for pid in pids(tmp_path) if start_ticks(pid) is not None] == []


def test_everything_stays_after_detach(start: Start, tmp_path: Path) -> None:
    """An owner that has finished may go, and what ends afterwards still starts again."""
    supervisor = start([program("one", ["sleep", "600"])])
    assert happened(tmp_path, "ready", "one")
    tell(supervisor, "detach")
    assert supervisor.stdin is not None
    supervisor.stdin.close()
    os.kill(pids(tmp_path)[0], signal.SIGKILL)
    assert happened(tmp_path, "ready", "one", times=2)
    assert supervisor.poll() is None


def test_a_stopped_program_stays_down_until_it_is_started(start: Start, tmp_path: Path) -> None:
    """`stop` kills and keeps down, `start` brings back."""
    supervisor = start([program("one", ["sleep", "600"]), program("ticker", ["sh", "-c", "exit 0"])])
    assert happened(tmp_path, "ready", "one")
    tell(supervisor, "stop one")
    assert happened(tmp_path, "exited", "one")
    # Meanwhile another program ends and starts, twice over: long enough for this one, were it not kept down.
    assert happened(tmp_path, "started", "ticker", times=3)
    assert (
        len([row for row in events(tmp_path) if row["program"] == "one" and row["event"] == "started"]) == 1
    )
    tell(supervisor, "start one")
    assert happened(tmp_path, "ready", "one", times=2)


def test_readiness_counts_the_status_code_alone(tmp_path: Path) -> None:
    """An error answer whose body says ok is not ready, and neither is a refused connection."""
    serve = (
        "import http.server as h, sys\n"
        "class A(h.BaseHTTPRequestHandler):\n"
        "  def do_GET(self):\n"
        "    self.send_response(int(self.path[1:])); self.end_headers(); self.wfile.write(b'ok')\n"
        "s = h.HTTPServer(('127.0.0.1', 0), A)\n"
        "print(s.server_port, flush=True); s.serve_forever()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", serve], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        assert server.stdout is not None
        address = f"http://127.0.0.1:{int(server.stdout.readline())}"
        assert module.is_ready({"url": f"{address}/200"})
        assert not module.is_ready({"url": f"{address}/500"})
        server.kill()
        server.wait()
        assert not module.is_ready({"url": f"{address}/200"})
    assert not module.is_ready({"socket": str(tmp_path / "none")})
