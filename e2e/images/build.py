"""Build an image once and keep it in the cache folder, by the hash of its recipe."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.files import Progress, cache_root, locked

from .archive import write_archive
from .debian import Release, this_release
from .errors import ImageError
from .layer import PackedLayer, pack
from .recipe import Image, Layer, Workshop, image_key, layer_keys
from .recipes import IMAGES
from .wheels import python_version

KEEP = 3
"""Outcomes of one recipe that stay in the cache; the oldest go. A run may still load the one before."""


@dataclass(frozen=True)
class BuiltImage:
    """An image by name and file."""

    reference: str
    """`ebb.local/<name>:<hash>`; the same name always means the same content."""
    archive: Path


def build(name: str, progress: Progress = print) -> BuiltImage:
    """The image of that name, built now unless it was before; ImageError says why it cannot be."""
    make = IMAGES.get(name)
    if make is None:
        raise ImageError(f"there is no recipe for {name!r}: {', '.join(IMAGES)}")
    release = this_release()
    return build_image(name, make(release), release=release, progress=progress)


def build_image(name: str, image: Image, *, release: Release, progress: Progress) -> BuiltImage:
    """Build what `image` describes; processes that want the same wait for one another."""
    key = image_key(image, release)
    folder = cache_root() / "images"
    archive = folder / f"{name}-{key}.tar"
    built = BuiltImage(f"ebb.local/{name}:{key}", archive)
    if _in_use(archive):
        return built
    with locked(folder / f".{name}.lock", waiting_for=f"image {name}", progress=progress):
        if _in_use(archive):
            return built
        started = time.monotonic()
        layers = _layers(image, release=release, progress=progress)
        scratch = archive.with_name(f".{name}.partial")
        write_archive(
            scratch,
            reference=built.reference,
            layers=layers,
            config=image.config,
            architecture=release.architecture,
        )
        scratch.replace(archive)
        _prune(folder, f"{name}-*.tar", Path.unlink)
        size = archive.stat().st_size / 1e6
        progress(f"image {name} built in {time.monotonic() - started:.0f} s ({size:.0f} MB)")
    return built


def _layers(image: Image, *, release: Release, progress: Progress) -> list[PackedLayer]:
    packed: list[PackedLayer] = []
    for layer, key in zip(image.layers, layer_keys(image, release), strict=True):
        below = packed[0].tar if packed else None
        packed.append(_layer(layer, key, below=below, release=release, progress=progress))
    return packed


def _layer(
    layer: Layer, key: str, *, below: Path | None, release: Release, progress: Progress
) -> PackedLayer:
    folder = cache_root() / "images" / "layers"
    done = folder / f"{layer.name}-{key}"
    with locked(folder / f".{layer.name}.lock", waiting_for=f"layer {layer.name}", progress=progress):
        if not _in_use(done):
            progress(f"making the layer {layer.name}")
            # Whoever was killed here left its folder behind; the lock says that nobody uses it now.
            scratch = folder / f".{layer.name}.partial"
            shutil.rmtree(scratch, ignore_errors=True)
            for part in ("root", "scratch", "out"):
                (scratch / part).mkdir(parents=True)
            python = python_version(below) if below else ""
            layer.fill(scratch / "root", Workshop(release, python, scratch / "scratch", progress))
            digest = pack(scratch / "root", scratch / "out" / "layer.tar", keep_times=layer.keep_times)
            (scratch / "out" / "diff_id").write_text(digest)
            (scratch / "out").rename(done)
            shutil.rmtree(scratch)
            _prune(folder, f"{layer.name}-*", shutil.rmtree)
    return PackedLayer(done / "layer.tar", (done / "diff_id").read_text())


def _in_use(path: Path) -> bool:
    """Whether it is there; if so its time says that it was wanted just now."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _prune(folder: Path, pattern: str, remove: Callable[[Path], None]) -> None:
    found = sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in found[KEEP:]:
        remove(path)
