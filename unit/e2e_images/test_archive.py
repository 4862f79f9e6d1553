"""Archives are what container runtimes import."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path

from e2e.images.archive import RunConfig, write_archive
from e2e.images.layer import PackedLayer


def layer(folder: Path, content: bytes) -> PackedLayer:
    folder.mkdir()
    (folder / "layer.tar").write_bytes(content)
    return PackedLayer(folder / "layer.tar", "sha256:" + hashlib.sha256(content).hexdigest())


def test_an_archive_names_image_config_and_layers(tmp_path: Path) -> None:
    """manifest.json names the reference, a config whose name is its digest, and the layers from the lowest up."""
    layers = [layer(tmp_path / "base", b"lower"), layer(tmp_path / "app", b"upper")]
    config = RunConfig(("run", "it"), {"PATH": "/bin"}, user="1:2", folder="/app")
    write_archive(
        tmp_path / "image.tar",
        reference="ebb.local/x:1",
        layers=layers,
        config=config,
        architecture="amd64",
    )
    with tarfile.open(tmp_path / "image.tar") as tar:
        content = {entry.name: tar.extractfile(entry).read() for entry in tar}  # type: ignore[union-attr]
    [image] = json.loads(content["manifest.json"])
    assert image["RepoTags"] == ["ebb.local/x:1"]
    assert [content[name] for name in image["Layers"]] == [b"lower", b"upper"]
    assert image["Config"] == hashlib.sha256(content[image["Config"]]).hexdigest() + ".json"
    described = json.loads(content[image["Config"]])
    assert (described["os"], described["architecture"]) == ("linux", "amd64")
    assert described["rootfs"] == {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]}
    assert described["config"] == {
        "Cmd": ["run", "it"],
        "Env": ["PATH=/bin"],
        "WorkingDir": "/app",
        "User": "1:2",
    }
    assert len(described["history"]) == 2
