"""Layers come out the same whoever packs them and when."""

from __future__ import annotations

import hashlib
import os
import tarfile
from pathlib import Path

import pytest

from e2e.images.layer import EPOCH, pack


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small tree with one of everything."""
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "tool").write_text("#!/bin/sh\n")
    (root / "bin" / "tool").chmod(0o755)
    (root / "bin" / "alias").symlink_to("tool")
    os.link(root / "bin" / "tool", root / "bin" / "twin")
    (root / "proc" / "1").mkdir(parents=True)
    os.mkfifo(root / "bin" / "pipe")
    return root


def entries(tar: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(tar) as opened:
        return {entry.name: entry for entry in opened}


def test_a_layer_does_not_depend_on_when_it_is_packed(root: Path, tmp_path: Path) -> None:
    """The same content at another time gives the same bytes."""
    first = pack(root, tmp_path / "first.tar")
    os.utime(root / "bin" / "tool", (1, 1))
    assert pack(root, tmp_path / "second.tar") == first
    assert (tmp_path / "first.tar").read_bytes() == (tmp_path / "second.tar").read_bytes()


def test_other_content_gives_another_digest(root: Path, tmp_path: Path) -> None:
    """One changed byte changes the digest, which is over the tar's own bytes."""
    first = pack(root, tmp_path / "first.tar")
    (root / "bin" / "tool").write_text("#!/bin/bash\n")
    second = pack(root, tmp_path / "second.tar")
    assert first != second
    assert second == "sha256:" + hashlib.sha256((tmp_path / "second.tar").read_bytes()).hexdigest()


def test_modes_and_links_are_kept(root: Path, tmp_path: Path) -> None:
    """A program stays executable, a link stays a link, and parents come before what is in them."""
    pack(root, tmp_path / "layer.tar")
    packed = entries(tmp_path / "layer.tar")
    assert packed["bin/tool"].mode == 0o755
    assert packed["bin/alias"].issym() and packed["bin/alias"].linkname == "tool"
    assert packed["bin/twin"].islnk() and packed["bin/twin"].linkname == "bin/tool"
    assert packed["bin/tool"].mtime == EPOCH
    assert list(packed).index("bin") < list(packed).index("bin/tool")


def test_what_a_runtime_brings_itself_is_left_out(root: Path, tmp_path: Path) -> None:
    """Of /proc only the mount point is packed; pipes and devices are not."""
    pack(root, tmp_path / "layer.tar")
    names = set(entries(tmp_path / "layer.tar"))
    assert "proc" in names
    assert not {"proc/1", "bin/pipe"} & names


def test_a_debian_tree_keeps_its_times(root: Path, tmp_path: Path) -> None:
    """With `keep_times` a file's own time is packed, which its compiled twin records."""
    os.utime(root / "bin" / "tool", (1_700_000_000, 1_700_000_000))
    pack(root, tmp_path / "layer.tar", keep_times=True)
    assert entries(tmp_path / "layer.tar")["bin/tool"].mtime == 1_700_000_000
