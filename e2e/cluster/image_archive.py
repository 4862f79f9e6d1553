"""What an image archive says it is, so that the same image is not imported twice."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path

from .errors import ClusterError


def identity(archive: Path) -> str:
    """A hash over names and configuration of every image in a Docker-style archive.

    The configuration names each layer by digest, so it stands for the content without reading the layers.
    """
    digest = hashlib.sha256()
    try:
        with tarfile.open(archive) as tar:
            manifest = _member(tar, "manifest.json")
            for image in json.loads(manifest):
                digest.update(json.dumps(sorted(image["RepoTags"] or [])).encode())
                digest.update(_member(tar, image["Config"]))
    except (OSError, KeyError, ValueError, TypeError, tarfile.TarError) as failure:
        raise ClusterError(f"{archive} is no image archive with a manifest.json: {failure}") from failure
    return digest.hexdigest()[:24]


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    if file is None:
        raise KeyError(name)
    return file.read()
