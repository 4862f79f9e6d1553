"""What is remembered of clusters between commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.cluster.errors import ClusterError
from e2e.cluster.state import State, check_name, folder_of, known_names, read_state, write_state


@pytest.mark.parametrize("name", ["ebb", "a", "suite-1", "a" * 30])
def test_names_that_serve(name: str) -> None:
    """A name that fits node names and folders is returned as it is."""
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "1a", "a/b", "..", "a" * 31, "a b"])
def test_names_that_do_not_serve(name: str) -> None:
    """Anything else is refused before it becomes a path."""
    with pytest.raises(ClusterError, match="lower-case letters"):
        folder_of(name)


def test_a_state_survives_the_command(cache: Path) -> None:
    """What was written is read back, and only clusters with a state are known."""
    state = State(provider="local", phase="starting", index=3, tag="ab", pid=7, started=9)
    write_state("one", state)
    (cache / "clusters" / "no-state").mkdir()
    assert read_state("one") == state
    assert read_state("two") is None
    assert known_names() == ["one"]
