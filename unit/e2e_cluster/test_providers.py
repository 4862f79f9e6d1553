"""Which provider serves, and what a person reads when none does."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from e2e.cluster import ClusterError, down, get_cluster, up
from e2e.cluster.providers import default_provider
from e2e.cluster.state import State, folder_of, lock_of, write_state
from unit.e2e_cluster.conftest import StandIns


@pytest.mark.parametrize(
    ("docker", "kind", "root", "system", "expected"),
    [
        ("answers", True, True, "Linux", ("kind", "a Docker engine answers and `kind` is on PATH")),
        ("answers", True, False, "Darwin", ("kind", "a Docker engine answers and `kind` is on PATH")),
        (
            "answers",
            False,
            True,
            "Linux",
            ("local", "this is Linux and you are root (`kind` is not on PATH)"),
        ),
        (
            "silent",
            True,
            True,
            "Linux",
            ("local", "this is Linux and you are root (no Docker engine answers)"),
        ),
        (
            "absent",
            True,
            True,
            "Linux",
            ("local", "this is Linux and you are root (no Docker engine answers)"),
        ),
    ],
)
def test_the_provider_that_fits_the_machine(
    stand_ins: StandIns,
    monkeypatch: pytest.MonkeyPatch,
    docker: str,
    kind: bool,
    root: bool,
    system: str,
    expected: tuple[str, str],
) -> None:
    """kind where a Docker engine answers and kind is there, else a local node for root on Linux, with the reason."""
    arrange(stand_ins, monkeypatch, docker=docker, kind=kind, root=root, system=system)
    assert default_provider() == expected


@pytest.mark.parametrize(("root", "system"), [(False, "Linux"), (True, "Darwin")])
def test_no_provider_names_both_ways(
    stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch, root: bool, system: str
) -> None:
    """Where neither serves, one message says how to get either."""
    arrange(stand_ins, monkeypatch, docker="absent", kind=False, root=root, system=system)
    with pytest.raises(ClusterError, match=r"--provider kind\).*root on Linux \(--provider local\)"):
        default_provider()


def arrange(
    stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch, *, docker: str, kind: bool, root: bool, system: str
) -> None:
    if docker != "absent":
        stand_ins.add("docker", "sys.exit(0)" if docker == "answers" else "sys.exit(1)")
    if kind:
        stand_ins.add("kind")
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
    monkeypatch.setattr(platform, "system", lambda: system)


@pytest.mark.usefixtures("cache")
def test_a_name_of_another_provider_is_refused() -> None:
    """A name that a cluster of another provider has is not taken from it."""
    write_state("ebb", State(provider="kind", phase="running"))
    with pytest.raises(ClusterError, match="the name ebb is in use by a cluster of provider kind"):
        up("ebb", "local")
    with pytest.raises(ClusterError, match="is of provider kind, not local"):
        get_cluster("ebb", "local")


@pytest.mark.usefixtures("cache")
def test_down_of_a_cluster_that_is_not_there() -> None:
    """`down` without a cluster says so, fails nowhere and leaves no lock."""
    said: list[str] = []
    down("ebb", said.append)
    assert said == ["no cluster ebb"]
    assert not lock_of("ebb").exists()
    assert not folder_of("ebb").exists()


@pytest.mark.usefixtures("cache")
def test_a_cluster_that_is_not_up_says_how_to_start_it() -> None:
    """A suite that asks for a cluster too early reads the command that starts it."""
    with pytest.raises(ClusterError, match=r"python -m e2e\.cluster up --name ebb"):
        get_cluster("ebb")
    write_state(
        "ebb", State(provider="local", phase="starting", index=1, tag="ab", pid=os.getpid(), started=1)
    )
    with pytest.raises(ClusterError, match=r"is not running: python -m e2e\.cluster up --name ebb"):
        get_cluster("ebb")


def test_a_second_up_of_kind_finds_it_running(built: Path, stand_ins: StandIns) -> None:
    """`up` on a running cluster says that it runs and creates nothing."""
    del built
    stand_ins.add("kind", "if sys.argv[1:3] == ['get', 'clusters']: print('other\\nebb')")
    write_state("ebb", State(provider="kind", phase="running"))
    said: list[str] = []
    assert up("ebb", progress=said.append).node_address == "172.18.0.2"
    assert said == ["cluster ebb is already running (kind)"]
    assert stand_ins.calls_of("kind") == [["get", "clusters"]]
