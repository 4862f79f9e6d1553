"""Where clusters and caches live, and how two processes keep out of each other's way there."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import ClusterError

Progress = Callable[[str], None]


def cache_root() -> Path:
    """`$EBB_CACHE`, else `$XDG_CACHE_HOME/ebb`, else `~/.cache/ebb`."""
    if own := os.environ.get("EBB_CACHE"):
        return Path(own).absolute()
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg).absolute() / "ebb"
    return Path.home() / ".cache" / "ebb"


def write_atomically(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Readers see the old text or the new one; a crash in between leaves the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    scratch.replace(path)


@contextmanager
def locked(
    path: Path,
    *,
    waiting_for: str,
    progress: Progress,
    timeout: float = 1800,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Hold the file lock `path`; the kernel lets go of it when the holder dies, however it dies.

    Waits up to `timeout` seconds for another holder and says once that it does; then `ClusterError`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = clock() + timeout
    told = False
    while (descriptor := _try_lock(path)) is None:
        if not told:
            progress(f"waiting for another process: {waiting_for}")
            told = True
        if clock() >= deadline:
            raise ClusterError(f"another process still holds {path} after {timeout:.0f} s ({waiting_for})")
        sleep(0.2)
    try:
        yield
    finally:
        os.close(descriptor)


def _try_lock(path: Path) -> int | None:
    """An open descriptor that holds the lock, None when somebody else does or the file was just removed."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A holder may remove the file as its last act; a lock on the removed file would exclude nobody.
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None
