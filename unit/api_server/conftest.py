"""One API server with the CRD for all tests of this folder, and a client of the controller's own on it."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest

from apis.crd import render_crd
from apis.v1alpha1 import labels
from controller.cluster.client import Client
from controller.cluster.credentials import load_credentials
from controller.cluster.http_client import HttpClient
from controller.cluster.server_time import ServerTime
from e2e.cluster import ControlPlane, binaries, control_plane

GROUP_VERSION: Final = f"/apis/{labels.API_VERSION}"


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd and kube-apiserver, built on the spot where EBB_REQUIRE_CLUSTER forbids a skip."""
    if binaries.find("control-plane") is None and not os.environ.get("EBB_REQUIRE_CLUSTER"):
        pytest.skip("etcd and kube-apiserver are not built; `make control-plane` builds them")
    with control_plane(tmp_path_factory.mktemp("plane")) as running:
        running.kubectl("apply", "--server-side", "-f", "-", stdin=render_crd())
        wait_until_served(running)
        yield running


def wait_until_served(plane: ControlPlane, *, seconds: float = 30) -> None:
    """A new CRD is served a moment after it was stored; `kubectl wait` stumbles over one without conditions."""
    deadline = time.monotonic() + seconds
    while "modeldeployments/status" not in plane.kubectl("get", "--raw", GROUP_VERSION, check=False):
        assert time.monotonic() < deadline, f"{GROUP_VERSION} is not served after {seconds:g} s"
        time.sleep(0.1)


@pytest.fixture
async def client(plane: ControlPlane) -> AsyncIterator[Client]:
    """The admin's, through the controller's own HTTP client."""
    credentials = await load_credentials(kubeconfig=Path(plane.kubeconfig))
    async with HttpClient(credentials, server_time=ServerTime()) as http:
        yield http
