"""Cache folder, atomic files, locks and image archives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from e2e.cluster import ClusterError
from e2e.cluster.files import cache_root, locked, write_atomically
from e2e.cluster.image_archive import identity
from unit.e2e_cluster.test_kind import write_archive


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """$EBB_CACHE wins over $XDG_CACHE_HOME, and that over ~/.cache."""
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("EBB_CACHE", raising=False)
    assert cache_root() == Path("/home/me/.cache/ebb")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_root() == Path("/xdg/ebb")
    monkeypatch.setenv("EBB_CACHE", "/own")
    assert cache_root() == Path("/own")


def test_a_lock_is_waited_for_aloud_and_not_for_ever(tmp_path: Path) -> None:
    """A second holder says once what it waits for and gives up after its time."""
    said: list[str] = []
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    lock = tmp_path / "lock"
    with locked(lock, waiting_for="up of ebb", progress=said.append):
        assert said == []
        with (
            pytest.raises(ClusterError, match=r"still holds .*lock after 5 s"),
            locked(
                lock, waiting_for="up of ebb", progress=said.append, timeout=5, clock=lambda: now, sleep=sleep
            ),
        ):
            pytest.fail("two holders at once")
    assert said == ["waiting for another process: up of ebb"]
    with locked(lock, waiting_for="up of ebb", progress=said.append):
        assert len(said) == 1


def test_a_lock_whose_file_was_removed_excludes_again(tmp_path: Path) -> None:
    """The holder removes the file as its last act; whoever waited gets a lock on the new file, not on the old one."""
    lock = tmp_path / "lock"
    with locked(lock, waiting_for="x", progress=lambda _: None):

        def release(seconds: float) -> None:
            del seconds
            lock.unlink(missing_ok=True)

        with (
            locked(lock, waiting_for="x", progress=lambda _: None, sleep=release),
            pytest.raises(ClusterError),
            locked(lock, waiting_for="x", progress=lambda _: None, timeout=0),
        ):
            pytest.fail("two holders at once")


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    """The new text is there with its mode, and no scratch file is left beside it."""
    path = tmp_path / "folder" / "file"
    write_atomically(path, "one")
    write_atomically(path, "two", mode=0o600)
    assert path.read_text() == "two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_an_image_is_known_by_its_content(tmp_path: Path) -> None:
    """The same content in another file is the same image; other layers make another one."""
    one, same, other = (tmp_path / name for name in ("one.tar", "same.tar", "other.tar"))
    write_archive(one, "a")
    write_archive(same, "a")
    write_archive(other, "b")
    assert identity(one) == identity(same)
    assert identity(one) != identity(other)


def test_what_is_no_image_archive_is_named(tmp_path: Path) -> None:
    """A file that is no archive is refused with its path instead of being handed to containerd."""
    path = tmp_path / "notes.txt"
    path.write_text(json.dumps({"not": "an archive"}))
    with pytest.raises(ClusterError, match=r"notes\.txt is no image archive"):
        identity(path)
    with pytest.raises(ClusterError, match=r"none\.tar is no image archive"):
        identity(tmp_path / "none.tar")
