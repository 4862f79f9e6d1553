"""The first process of a node's own namespaces: private mounts, then the supervisor, then reaping orphans.

A program of its own (standard library only). When it ends, the kernel ends every process of its pid namespace, and
with the last of them go the mounts, the network namespace, its links, routes and nft tables. That is why
nothing of a node has to be torn down piece by piece, whenever and however it is killed.

The plan (JSON), beside what the supervisor reads: `tmpfs` (folders to cover) and `sysctls` (path below /proc/sys →
value to show instead of the real file).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def make_private(plan: dict[str, Any]) -> None:
    """Cover the folders where node programs leave files, in this mount namespace alone."""
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    for folder in plan["tmpfs"]:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755", "ebb-node", folder], check=True)
    for name, value in plan["sysctls"].items():
        # The kubelet insists on these and they belong to the whole machine, so it gets files of its own to set.
        shadow = Path("/run/ebb-sysctl") / name
        shadow.parent.mkdir(parents=True, exist_ok=True)
        shadow.write_text(f"{value}\n")
        subprocess.run(["mount", "--bind", str(shadow), str(Path("/proc/sys") / name)], check=True)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1\n")


def owner_went_away() -> bool:
    """Wait for the owner's line that says the network is there. Reads no byte too many: the rest is commands."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return True
        line += byte
    return False


def main() -> int:
    plan_file = sys.argv[1]
    make_private(json.loads(Path(plan_file).read_text()))
    if owner_went_away():
        return 1
    child = os.fork()
    if child == 0:
        supervisor = str(Path(__file__).with_name("supervisor.py"))
        os.execv(sys.executable, [sys.executable, supervisor, plan_file])
    os.close(0)
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status) & 0xFF


if __name__ == "__main__":
    sys.exit(main())
