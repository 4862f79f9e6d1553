"""What a local node asks of the machine and how its traces are found."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from e2e.cluster import ClusterError, host, local
from e2e.cluster.events import Events


@pytest.fixture
def fitting(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that can carry a node."""
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=9 << 30))
    return cache


@pytest.mark.usefixtures("fitting")
def test_a_machine_that_fits_is_accepted() -> None:
    """Root on Linux with 9 GB free is enough."""
    local.check_machine()


@pytest.mark.usefixtures("fitting")
def test_a_machine_that_does_not_fit_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not root, too little disk, a cache folder in a covered place, not Linux: each has its own message."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 1000)
        with pytest.raises(ClusterError, match=r"needs root.*sudo"):
            local.check_machine()
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=7 << 30))
        with pytest.raises(ClusterError, match=r"needs 8 GB free at .*; there are 7\.0"):
            local.check_machine()
    with monkeypatch.context() as patch:
        patch.setenv("EBB_CACHE", "/run/ebb")
        with pytest.raises(ClusterError, match=r"lies below /run.*set EBB_CACHE"):
            local.check_machine()
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    with pytest.raises(ClusterError, match="needs Linux; use --provider kind"):
        local.check_machine()


def test_cgroup_hierarchies_of_both_versions() -> None:
    """Every mounted hierarchy is found, whichever version, and nothing else."""
    mounts = """\
tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0
proc /proc proc rw 0 0
"""
    assert host.cgroup_mounts(mounts) == [Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup/unified")]


def test_a_process_is_known_by_its_start_time() -> None:
    """A pid that another process has got meanwhile is neither alive for us nor killed."""
    with subprocess.Popen(["sleep", "600"]) as process:
        started = host.start_ticks(process.pid)
        assert started is not None
        host.kill_and_wait(process.pid, started - 1)
        assert host.start_ticks(process.pid) == started
        host.kill_and_wait(process.pid, started)
        # Killed but not yet reaped: gone all the same.
        assert host.start_ticks(process.pid) is None
    assert host.start_ticks(process.pid) is None


def test_events_are_read_as_they_are_written(tmp_path: Path) -> None:
    """A line that is half written is not lost and not read twice; an early end is told once."""
    said: list[str] = []
    path = tmp_path / "events.jsonl"
    events = Events(path, said.append)
    events.read()
    lines = [
        '{"program": "etcd", "event": "started", "pid": 5, "seconds": 0.1}\n',
        '{"program": "etcd", "event": "exited", "pid": 5, "status": 1, "seconds": 0.2}\n',
        '{"program": "etcd", "event": "started", "pid": 6, "seconds": 1.2}\n',
        '{"program": "etcd", "event": "ready", "pid": 6, "seconds": 1.5}\n',
    ]
    text = "".join(lines)
    for cut in (len(lines[0]) + 10, len(text) - 3, len(text)):
        path.write_text(text[:cut])
        events.read()
    assert events.ready == {"etcd"}
    assert events.ended == set()
    assert events.troubled == ["etcd"]
    assert events.pids == {"etcd": 6}
    assert said == ["    0.2 s  etcd ended with status 1", "    1.5 s  etcd is ready"]


def test_tails_of_logs(tmp_path: Path) -> None:
    """A failed start shows the last lines of the logs that matter, each below its name, once."""
    (tmp_path / "kubelet.log").write_text("\n".join(f"line {number}" for number in range(20)))
    text = Events.tails(tmp_path, ["kubelet", "none", "kubelet"], lines=2)
    assert text == "--- kubelet\nline 18\nline 19"
