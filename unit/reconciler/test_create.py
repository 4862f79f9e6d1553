"""From an empty namespace to a deployment that is whole, and then silence."""

from __future__ import annotations

import pytest

from unit.reconciler.world import KEEPER, TARGET, World, labelled

pytestmark = pytest.mark.control_plane


async def test_create(world: World) -> None:
    """Two replicas, their Services and the router's objects are made, each once."""
    await world.ready()
    assert await world.pod_names() == [KEEPER, TARGET]
    assert labelled(await world.pod(KEEPER))
