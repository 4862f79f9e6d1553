"""The traces a local node leaves on this machine (processes, cgroups, a link) and how each is taken away."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import ClusterError
from .packages import SYSTEM_PATH

CGROUP_ROOT = Path("/sys/fs/cgroup")


def cgroup_mounts(mounts: str) -> list[Path]:
    """Every cgroup hierarchy, v1 or v2, in the text of /proc/mounts."""
    rows = (line.split() for line in mounts.splitlines())
    return sorted({Path(row[1]) for row in rows if row[2] in ("cgroup", "cgroup2")})


def hierarchies() -> list[Path]:
    found = cgroup_mounts(Path("/proc/mounts").read_text())
    if not found:
        raise ClusterError("this machine has no cgroup file system mounted; a node cannot run on it")
    return found


@contextmanager
def machine_lock() -> Iterator[None]:
    """Excludes every other chooser of addresses on this machine, whatever its cache folder. Leaves no file."""
    descriptor = os.open(CGROUP_ROOT, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def reserved_cgroups() -> list[str]:
    """The cgroups of all nodes, anybody's."""
    return sorted({path.name for root in hierarchies() for path in root.glob("ebb*-*")})


def reserve_cgroup(name: str) -> None:
    """Make the node's cgroup in every hierarchy: the kubelet refuses a root that is missing in one."""
    for root in hierarchies():
        _enable_controllers(root)
        (root / name).mkdir()


def _enable_controllers(root: Path) -> None:
    """On cgroup v2 a child has only the controllers that its parent hands on, and the kubelet wants several."""
    handed_on = root / "cgroup.subtree_control"
    if root != CGROUP_ROOT or not handed_on.exists():
        return  # v1, or the v2 tree beside v1 that carries no controller the kubelet asks for
    missing = set((root / "cgroup.controllers").read_text().split()) - set(handed_on.read_text().split())
    for controller in sorted(missing):
        # One it cannot hand on (in use by a process here) is missed only if the kubelet needs it, and then says so.
        with suppress(OSError):
            handed_on.write_text(f"+{controller}")


def holds_cgroup(name: str) -> bool:
    return any((root / name).is_dir() for root in hierarchies())


def remove_cgroups(name: str, *, timeout: float = 10) -> None:
    """Remove the node's cgroup from every hierarchy, deepest first; busy ones empty as their processes end."""
    deadline = time.monotonic() + timeout
    for top in (root / name for root in hierarchies()):
        while top.is_dir():
            for folder, _, _ in os.walk(top, topdown=False):
                with suppress(OSError):
                    Path(folder).rmdir()
            if top.is_dir():
                if time.monotonic() > deadline:
                    raise ClusterError(f"the cgroup {top} still holds processes after {timeout:.0f} s")
                time.sleep(0.05)


def links_and_networks(ip: str) -> tuple[list[str], list[str]]:
    """(names of links, CIDRs of addresses and routes) of this machine, without default routes."""

    def ask(*arguments: str) -> list[dict[str, object]]:
        answer = subprocess.run([ip, "-json", *arguments], capture_output=True, text=True, check=True)
        rows: list[dict[str, object]] = json.loads(answer.stdout or "[]")
        return rows

    links = [str(row["ifname"]) for row in ask("link", "show")]
    routes = [str(row["dst"]) for row in ask("-4", "route", "show", "table", "all")]
    return links, [route for route in routes if route[:1].isdigit()]


def remove_link(link: str, *, timeout: float = 10) -> None:
    """Until the link is gone. It goes with the node's network namespace, unless somebody else holds that open."""
    if (ip := shutil.which("ip", path=os.pathsep.join(SYSTEM_PATH))) is not None:
        subprocess.run([ip, "link", "delete", link], capture_output=True, check=False)
    if not wait_until(lambda: not Path("/sys/class/net", link).exists(), timeout=timeout):
        raise ClusterError(f"the link {link} is still there after {timeout:.0f} s")


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None when there is none (a zombie counts as none)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may hold blanks; everything after it does not.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def child_of(pid: int, *, timeout: float = 10) -> int:
    """The only child of a process that is about to fork it."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except FileNotFoundError:
            raise ClusterError("the node's namespaces could not be made: unshare ended at once") from None
        if children:
            return int(children[0])
        if time.monotonic() > deadline:
            raise ClusterError(f"unshare made no process within {timeout:.0f} s")
        time.sleep(0.01)


def kill_and_wait(pid: int, started: int, *, timeout: float = 30) -> None:
    """SIGKILL the first process of a pid namespace; it is gone only when every process in there is."""
    if start_ticks(pid) != started:
        return
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + timeout
    while start_ticks(pid) == started:
        if time.monotonic() > deadline:
            raise ClusterError(f"process {pid} is still there {timeout:.0f} s after SIGKILL")
        time.sleep(0.02)


def processes_in_namespace_of(pid: int) -> list[tuple[int, list[str]]]:
    """(pid, argv) of every process in the pid namespace of `pid`; containers are in namespaces of their own."""
    wanted = Path(f"/proc/{pid}/ns/pid").readlink()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if (entry / "ns" / "pid").readlink() == wanted:
                    argv = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                    found.append((int(entry.name), argv))
    return found


def wait_until(
    condition: Callable[[], bool],
    *,
    timeout: float,
    pause: float = 0.1,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Whether `condition` held within `timeout` seconds, looked at every `pause` seconds."""
    deadline = clock() + timeout
    while not condition():
        if clock() >= deadline:
            return False
        sleep(pause)
    return True
