"""The image of the process that holds a Pod's namespaces; the node cannot start a Pod without one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .files import Progress


@dataclass(frozen=True)
class SandboxImage:
    """A name as containers ask for it, and the archive to import."""

    reference: str
    archive: Path


def sandbox_image(progress: Progress) -> SandboxImage:
    from e2e.images import build

    del progress
    built = build("sandbox")
    return SandboxImage(built.reference, built.archive)
