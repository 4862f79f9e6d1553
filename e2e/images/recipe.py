"""What a recipe is made of, and the hash that names its outcome."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.files import Progress

from .archive import RunConfig
from .debian import Release

FORMAT = "1"
"""Raise it when packing changes in a way that makes cached layers wrong."""


@dataclass(frozen=True)
class Workshop:
    """What a recipe may use while it fills a layer."""

    release: Release
    python: str
    """`3.N` of the Python in the layer below; empty for the lowest layer."""
    scratch: Path
    """An empty folder of its own, removed afterwards."""
    progress: Progress


@dataclass(frozen=True)
class Layer:
    """One layer: how to fill its folder, and everything that decides what comes out."""

    name: str
    fill: Callable[[Path, Workshop], None]
    inputs: tuple[str, ...] = ()
    """Versions, texts, digests; the code of `fill` counts by itself."""
    keep_times: bool = False


@dataclass(frozen=True)
class Image:
    """Layers from the lowest up, and how a container starts."""

    layers: tuple[Layer, ...]
    config: RunConfig


def layer_keys(image: Image, release: Release) -> list[str]:
    """One hash per layer, over its recipe and those below it, since a layer is filled for what it lies on."""
    keys: list[str] = []
    for layer in image.layers:
        below = keys[-1] if keys else f"{FORMAT} {release}"
        keys.append(_hash(below, layer.name, inspect.getsource(layer.fill), *layer.inputs))
    return keys


def image_key(image: Image, release: Release) -> str:
    return _hash(*layer_keys(image, release), json.dumps(image.config.fields(), sort_keys=True))


def digest_of_files(files: dict[str, bytes]) -> str:
    """One hash over names and contents."""
    return _hash(
        *(f"{name} {hashlib.sha256(content).hexdigest()}" for name, content in sorted(files.items()))
    )


def _hash(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
