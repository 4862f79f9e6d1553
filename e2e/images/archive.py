"""The docker-save archive: what `ctr images import` and `kind load image-archive` read."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .layer import EPOCH, PackedLayer

CREATED = "2020-01-01T00:00:00Z"


@dataclass(frozen=True)
class RunConfig:
    """How a container of the image starts when the Pod says nothing else."""

    command: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    user: str = ""
    """`uid:gid`; empty is root."""
    folder: str = "/"

    def fields(self) -> dict[str, Any]:
        """As the image format spells them."""
        config: dict[str, Any] = {
            "Cmd": list(self.command),
            "Env": [f"{name}={value}" for name, value in self.environment.items()],
            "WorkingDir": self.folder,
        }
        if self.user:
            config["User"] = self.user
        return config


def write_archive(
    target: Path, *, reference: str, layers: Sequence[PackedLayer], config: RunConfig, architecture: str
) -> None:
    """Write the archive of one image under one name to `target`. `architecture` as Go spells it (amd64)."""
    description = json.dumps(
        {
            "created": CREATED,
            "architecture": architecture,
            "os": "linux",
            "config": config.fields(),
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
            "history": [{"created": CREATED, "created_by": layer.tar.parent.name} for layer in layers],
        },
        sort_keys=True,
    ).encode()
    config_name = f"{hashlib.sha256(description).hexdigest()}.json"
    names = [f"{layer.diff_id.removeprefix('sha256:')}/layer.tar" for layer in layers]
    manifest = json.dumps([{"Config": config_name, "RepoTags": [reference], "Layers": names}]).encode()
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as tar:
        for name, content in (("manifest.json", manifest), (config_name, description)):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(content), EPOCH
            tar.addfile(entry, io.BytesIO(content))
        for name, layer in zip(names, layers, strict=True):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = layer.tar.stat().st_size, EPOCH
            with layer.tar.open("rb") as file:
                tar.addfile(entry, file)
