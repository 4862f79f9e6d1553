"""A real API server for the tests of this folder that ask for one."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from apis.crd import render_crd
from e2e.cluster import ControlPlane, binaries, control_plane
from unit.api_server.conftest import wait_until_served


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd and kube-apiserver with the CRD; skipped where they are not built, unless EBB_REQUIRE_CLUSTER is set."""
    if binaries.find("control-plane") is None and not os.environ.get("EBB_REQUIRE_CLUSTER"):
        pytest.skip("etcd and kube-apiserver are not built; `make control-plane` builds them")
    with control_plane(tmp_path_factory.mktemp("plane")) as running:
        running.kubectl("apply", "--server-side", "-f", "-", stdin=render_crd())
        wait_until_served(running)
        yield running
