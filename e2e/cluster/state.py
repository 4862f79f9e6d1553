"""What is remembered of each cluster between commands: one folder and one state file per name."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from .errors import ClusterError
from .files import cache_root, write_atomically

ProviderName = Literal["kind", "local", "existing"]
Phase = Literal["starting", "running"]

NAME = re.compile(r"[a-z]([a-z0-9-]{0,28}[a-z0-9])?")


@dataclass(frozen=True)
class State:
    """What is needed to find a cluster again, or to clear away what a killed command left of it."""

    provider: ProviderName
    phase: Phase
    context: str | None = None
    """`existing`: the context of the user's kubeconfig."""
    index: int | None = None
    """`local`: from which the link and the addresses follow; see `addresses.py`."""
    tag: str | None = None
    """`local`: proves that the index is this cluster's."""
    pid: int | None = None
    """`local`: the first process of the node's pid namespace, as this machine numbers it."""
    started: int | None = None
    """`local`: when it started, in clock ticks since boot, so a reused pid is not taken for it."""


def check_name(name: str) -> str:
    """The name itself; `ClusterError` when it could not serve in names of nodes and folders."""
    if NAME.fullmatch(name) is None:
        raise ClusterError(
            f"cluster name {name!r}: use 1 to 30 lower-case letters, digits and dashes, a letter first"
        )
    return name


def clusters_root() -> Path:
    return cache_root() / "clusters"


def folder_of(name: str) -> Path:
    return clusters_root() / check_name(name)


def lock_of(name: str) -> Path:
    return clusters_root() / f".{check_name(name)}.lock"


def read_state(name: str) -> State | None:
    """None when no cluster of that name is known."""
    try:
        text = (folder_of(name) / "state.json").read_text()
    except FileNotFoundError:
        return None
    return State(**json.loads(text))


def write_state(name: str, state: State) -> None:
    write_atomically(folder_of(name) / "state.json", json.dumps(asdict(state), indent=1))


def known_names() -> list[str]:
    """Every cluster with a state file, in order."""
    return sorted(path.parent.name for path in clusters_root().glob("*/state.json"))
