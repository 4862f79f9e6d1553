"""One API server for all worlds of this folder, and a world for a test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from controller.cluster.client import Client
from unit.api_server.conftest import client, plane
from unit.reconciler.world import World, new_world

__all__ = ["client", "plane", "world"]


@pytest.fixture
async def world(client: Client) -> AsyncIterator[World]:
    """A namespace with a controller that runs in it."""
    async with new_world(client) as running:
        yield running
