"""One node for all suites; each test has a namespace, a controller and an identity of its own on it.

So tests wait beside each other (`-n 4`), and one that kills its controller disturbs nobody. The node is brought up by
the process that was started by hand, before any worker runs a test, and taken down when all have ended.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from e2e.cluster import Cluster, ClusterError, down, get_cluster, up
from e2e.harness.audit import without_uid
from e2e.harness.controller import ControllerProcess, free_port
from e2e.harness.install import bind_user, install_api
from e2e.harness.scope import Scope
from e2e.images import build

CLUSTER = os.environ.get("EBB_E2E_CLUSTER", "ebb-e2e")
IMAGES = ("sample-engine", "vllm-router")


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    if _is_worker(session.config) or session.config.option.collectonly:
        return
    try:
        cluster = up(CLUSTER, None, progress=_say)
    except ClusterError as error:
        if os.environ.get("EBB_REQUIRE_CLUSTER"):
            pytest.exit(f"no cluster for the suites: {error}", returncode=1)
        _say(f"no cluster for the suites: {error}")
        return
    for name in IMAGES:
        cluster.load_image(build(name, progress=_say).archive)
    install_api(cluster)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not _is_worker(session.config) and not os.environ.get("EBB_E2E_KEEP"):
        down(CLUSTER, progress=_say)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts whole nodes takes the cores that others are timed on, so it comes last."""
    items.sort(key=lambda item: item.path.name == "test_cluster.py")


class OneTestAtATime(LoadScopeScheduling):  # type: ignore[misc]
    """Tests wander to whichever worker is free, but those that count what is on the whole machine stay together."""

    def _split_scope(self, nodeid: str) -> str:
        path, _, _ = nodeid.partition("::")
        return path if path.endswith("test_cluster.py") else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneTestAtATime:
    return OneTestAtATime(config, log)


def _say(text: str) -> None:
    print(text, flush=True)


@pytest.fixture(scope="session")
def node() -> Cluster:
    """The running node."""
    try:
        return get_cluster(CLUSTER)
    except ClusterError as error:
        pytest.skip(str(error))


@pytest.fixture
def scope(node: Cluster, request: pytest.FixtureRequest) -> Iterator[Scope]:
    """A namespace for one test, emptied when it ends."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    namespace = f"{words[:40].rstrip('-')}-{os.getpid() % 10000}"
    scope = Scope(node, namespace, user=f"ebb-controller-{namespace}")
    scope.create()
    yield scope
    scope.remove()


@pytest.fixture
def controller(node: Cluster, scope: Scope, tmp_path: Path) -> Iterator[ControllerProcess]:
    """A controller for the test's namespace alone, as a process of this machine under its own user."""
    bind_user(node, scope.user)
    log = tmp_path / "controller.log"
    with ControllerProcess(
        node, user=scope.user, namespace=scope.namespace, log=log, port=free_port()
    ) as running:
        yield running
    tail = log.read_text(errors="replace").splitlines()[-60:]
    print("controller log, its end:", *tail, sep="\n")
    defects = [line for line in tail if "met a defect" in line]
    assert not defects, json.dumps(defects)
    every_delete = [
        w for w in scope.writes() if w["verb"] == "delete" and w["objectRef"]["resource"] == "pods"
    ]
    assert without_uid(every_delete) == []
