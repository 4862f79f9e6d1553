"""Python packages for an image: resolved and unpacked by this machine's pip for the image's own Python.

The image needs no pip, nothing of the image runs here, and the two Pythons may differ.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

from .errors import ImageError

MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
GLIBC_MINORS = (36, 35, 34, 31, 28, 27, 24, 17)
"""Wheels may ask for glibc up to that of Debian 12, the oldest release with a Python new enough."""


def python_version(base: Path) -> str:
    """`3.N` of the Python in a base layer's tar."""
    with tarfile.open(base) as tar:
        for entry in tar:
            if found := re.fullmatch(r"usr/bin/python(3\.\d+)", entry.name):
                return found[1]
    raise ImageError(f"{base} holds no usr/bin/python3.N")


def install(
    requirements: Sequence[str],
    target: Path,
    *,
    python: str,
    architecture: str,
    constraints: Path | None = None,
    dependencies: bool = True,
) -> None:
    """Unpack wheels of `requirements`, with what they need, into `target`; compiled, without their scripts.

    `python` is the image's `3.N`, `architecture` as Debian spells it.
    """
    machine = MACHINES.get(architecture)
    if machine is None:
        raise ImageError(f"no Python wheels are known for {architecture}: {', '.join(MACHINES)} are")
    platforms = [f"--platform=manylinux_2_{minor}_{machine}" for minor in GLIBC_MINORS]
    _pip(
        "install",
        *("--target", str(target), "--no-compile", "--only-binary=:all:"),
        *(
            "--implementation=cp",
            f"--python-version={python}",
            *platforms,
            f"--platform=manylinux2014_{machine}",
        ),
        *(["--constraint", str(constraints)] if constraints else []),
        *([] if dependencies else ["--no-deps"]),
        *requirements,
    )


def compile_in_place(folder: Path, *, root: Path, python: str) -> None:
    """Compile what is under `folder` for a file system that cannot be written to later.

    Checked by nothing: neither times nor hashes are compared when such a file is loaded, so that a layer
    with levelled times starts as fast as any. Only this machine's Python can compile, so another
    version in the image means slower starts and nothing worse.
    """
    if python != f"{sys.version_info.major}.{sys.version_info.minor}":
        return
    subprocess.run(
        [
            *(sys.executable, "-m", "compileall", "-q", "--invalidation-mode=unchecked-hash"),
            *("-s", str(root), "-p", "/", str(folder)),
        ],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )


def build_wheel(source: Path, target: Path) -> Path:
    """The wheel of a source tree, built the way an installer builds it; its path in `target`."""
    _pip("wheel", "--no-deps", "--wheel-dir", str(target), str(source))
    return next(target.glob("*.whl"))


def _pip(*arguments: str) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        raise ImageError(f"pip {arguments[0]} failed:\n{answer.stderr.strip()[-800:]}")
