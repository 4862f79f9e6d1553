"""Which provider serves a cluster, and the commands that are the same for all of them."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from . import existing, kind, local
from .base import Cluster
from .errors import ClusterError
from .files import Progress, locked
from .state import ProviderName, State, check_name, folder_of, known_names, lock_of, read_state

PROVIDERS: Final[tuple[ProviderName, ...]] = ("kind", "local", "existing")


def default_provider() -> tuple[ProviderName, str]:
    """The provider for this machine and why; `ClusterError` that names both ways when there is none."""
    docker = docker_answers()
    has_kind = shutil.which("kind") is not None
    if docker and has_kind:
        return "kind", "a Docker engine answers and `kind` is on PATH"
    without = "no Docker engine answers" if not docker else "`kind` is not on PATH"
    if platform.system() == "Linux" and os.geteuid() == 0:
        return "local", f"this is Linux and you are root ({without})"
    raise ClusterError(
        f"no cluster can be made here: {without}, and you are not root on Linux. Either install Docker and kind "
        "(--provider kind), or run as root on Linux (--provider local)"
    )


def docker_answers() -> bool:
    if shutil.which("docker") is None:
        return False
    try:
        answer = subprocess.run(["docker", "version"], capture_output=True, timeout=10, check=False)
    except subprocess.TimeoutExpired:
        return False
    return answer.returncode == 0


def up(
    name: str, provider: ProviderName | None = None, progress: Progress = print, *, context: str | None = None
) -> Cluster:
    """The running cluster of that name, started when need be; clears what a killed `up` left.

    `context` belongs to `existing`, which is refused without one.
    """
    check_name(name)
    with _held(name, progress):
        state = read_state(name)
        if state is not None and provider is not None and state.provider != provider:
            raise ClusterError(
                f"the name {name} is in use by a cluster of provider {state.provider}: take that one down "
                f"(python -m e2e.cluster down --name {name}) or choose another --name"
            )
        if provider is None and state is not None:
            provider = state.provider
        if provider is None:
            provider, reason = default_provider()
            progress(f"provider {provider}: {reason}")
        if state is not None and _is_up(name, state):
            progress(f"cluster {name} is already running ({provider})")
            return _find(name, state)
        if state is not None:
            progress(f"clearing what an unfinished or dead cluster {name} left")
            _clear(name, state)
        if provider == "local":
            # A folder without a state file is what a command leaves that was killed before it had begun.
            local.clear(name)
            return local.up(name, progress)
        if provider == "kind":
            return kind.up(name, progress)
        return existing.up(name, context, progress)


def down(name: str, progress: Progress = print) -> None:
    """Take the cluster away; nothing of it is left on this machine. Fine when there is none."""
    check_name(name)
    with _held(name, progress, remove=True):
        state = read_state(name)
        if state is None and not folder_of(name).exists():
            progress(f"no cluster {name}")
            return
        if state is None:
            local.clear(name)
        else:
            _clear(name, state)
        progress(f"cluster {name} is down")


def get_cluster(name: str, provider: ProviderName | None = None) -> Cluster:
    """The cluster of that name, which must be up; `ClusterError` when it is not, or is of another provider."""
    state = read_state(name)
    if state is None:
        raise ClusterError(f"no cluster {name}: python -m e2e.cluster up --name {name}")
    if provider is not None and state.provider != provider:
        raise ClusterError(f"the cluster {name} is of provider {state.provider}, not {provider}")
    return _find(name, state)


@contextmanager
def fresh_cluster(
    name: str, provider: ProviderName | None = None, progress: Progress = print
) -> Iterator[Cluster]:
    """A cluster that holds nothing but this suite's objects: whatever had the name goes first, this one at the end."""
    down(name, progress)
    try:
        yield up(name, provider, progress)
    finally:
        down(name, progress)


def statuses() -> Iterator[tuple[str, State, bool]]:
    """(name, state, whether it runs) of every known cluster."""
    for name in known_names():
        if (state := read_state(name)) is not None:
            yield name, state, _is_up(name, state)


@contextmanager
def _held(name: str, progress: Progress, *, remove: bool = False) -> Iterator[None]:
    with locked(lock_of(name), waiting_for=f"up or down of cluster {name}", progress=progress):
        yield
        if remove:
            lock_of(name).unlink(missing_ok=True)


def _is_up(name: str, state: State) -> bool:
    if state.phase != "running":
        return False
    if state.provider == "local":
        return local.is_alive(state)
    return kind.is_alive(name) if state.provider == "kind" else True


def _find(name: str, state: State) -> Cluster:
    if state.provider == "local":
        return local.find(name, state)
    return kind.find(name) if state.provider == "kind" else existing.find(name, state)


def _clear(name: str, state: State) -> None:
    if state.provider == "local":
        local.clear(name)
    elif state.provider == "kind":
        kind.down(name)
    else:
        existing.down(name)
