"""One API server for all worlds of this folder, and a world for a test."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from controller.cluster.client import Client
from controller.cluster.credentials import load_credentials
from controller.cluster.http_client import HttpClient
from controller.cluster.server_time import ServerTime
from e2e.cluster import ControlPlane
from unit.api_server.conftest import client, plane
from unit.reconciler.world import Clients, World, new_world

__all__ = ["client", "plane"]

RBAC: Final = Path(__file__).parents[2] / "manifests" / "rbac"
USER: Final = "ebb-test-controller"


@pytest.fixture(scope="session")
def permitted(plane: ControlPlane) -> Path:
    """A kubeconfig of a user who may do what the controller's ClusterRole says, and nothing else."""
    plane.kubectl("apply", "-k", str(RBAC))
    plane.kubectl("create", "clusterrolebinding", USER, "--clusterrole=ebb-controller", f"--user={USER}")
    deadline = time.monotonic() + 10
    while "yes" not in plane.kubectl("auth", "can-i", "list", "pods", "-A", f"--as={USER}", check=False):
        assert time.monotonic() < deadline, "the binding of the ClusterRole does not take effect"
        time.sleep(0.1)
    return plane.identity(USER)


@pytest.fixture
async def clients(client: Client, permitted: Path) -> AsyncIterator[Clients]:
    """The test's own hand, and the controller's."""
    credentials = await load_credentials(kubeconfig=permitted)
    async with HttpClient(credentials, server_time=ServerTime()) as own:
        yield Clients(admin=client, controller=own)


@pytest.fixture
async def world(clients: Clients) -> AsyncIterator[World]:
    """A namespace with a controller that runs in it."""
    async with new_world(clients) as running:
        yield running
