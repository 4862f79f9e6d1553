"""A layer: a folder as a tar that comes out the same whoever packs it and when."""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

EPOCH = 1_577_836_800
"""2020-01-01, in seconds: the time of every file whose own time means nothing."""

MOUNTED_OVER = frozenset({"dev", "proc", "sys"})


@dataclass(frozen=True)
class PackedLayer:
    """An uncompressed layer on disk and its digest, by which a runtime knows a layer that it already has."""

    tar: Path
    diff_id: str
    """`sha256:` and 64 hexadecimal digits, over the tar's bytes."""


class _Hashing:
    """A file to write to that hashes what passes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        return self._file.write(data)

    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"


def pack(root: Path, target: Path, *, keep_times: bool = False) -> str:
    """Write the tar of everything under `root` to `target`; returns its digest.

    Devices, sockets and what a runtime mounts over (/dev, /proc, /sys) are left out. `keep_times` keeps
    modification times: a Debian tree needs its own, since its compiled Python files record those of the sources.
    """
    with target.open("wb") as file:
        stream = _Hashing(file)
        with tarfile.open(fileobj=stream, mode="w|", format=tarfile.GNU_FORMAT) as tar:  # type: ignore[call-overload]
            for path in _walk(root):
                entry = tar.gettarinfo(path, arcname=str(path.relative_to(root)))
                if entry is None or entry.ischr() or entry.isblk() or entry.isfifo():
                    continue
                # Names would be looked up on the machine that packs; numbers mean the same everywhere.
                entry.uname = entry.gname = ""
                if os.geteuid() != 0:
                    entry.uid = entry.gid = 0
                entry.mtime = int(entry.mtime) if keep_times else EPOCH
                if entry.isreg():
                    with path.open("rb") as content:
                        tar.addfile(entry, content)
                else:
                    tar.addfile(entry)
        return stream.digest()


def _walk(root: Path) -> Iterable[Path]:
    """Every path under `root`, parents first, in one order; of /dev, /proc and /sys the folder alone."""
    for path in _below(root):
        top, *inside = path.relative_to(root).parts
        if not (inside and top in MOUNTED_OVER):
            yield path


def _below(folder: Path) -> Iterable[Path]:
    for path in sorted(folder.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _below(path)
