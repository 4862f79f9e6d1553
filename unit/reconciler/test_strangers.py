"""Pods and edits that an operation must not be misled by: a stranger with a router's labels, a role that is dropped."""

from __future__ import annotations

import pytest

from apis.v1alpha1 import labels
from unit.reconciler.deployments import condition, labelled, operation, replicas_of, state
from unit.reconciler.world import KEEPER, NAME, TARGET, World

pytestmark = pytest.mark.control_plane

ROUTER_LABELS = {
    labels.INSTANCE: NAME,
    labels.MANAGED_BY: labels.EBB,
    labels.COMPONENT: labels.ROUTER_COMPONENT,
}


async def test_labels_make_no_router(world: World) -> None:
    """F11 A stranger's Pod with a router's labels is never asked: without a router the replica is held and kept."""
    await world.ready(router=None)
    await world.post_pod("looks-like-a-router", ROUTER_LABELS)
    await world.settle()
    await world.scale(1)
    found = await world.until(lambda d: state(d) == "Aborted")
    assert "connections established through the Service" in operation(found)["reason"]
    assert labelled(await world.pod(TARGET)) and labelled(await world.pod(KEEPER))
    assert "roleSummary" in found["status"] and "R" not in found["status"]["roleSummary"]


async def test_role_dropped_in_the_middle(world: World) -> None:
    """A role that is dropped while one of its replicas is on its way out is not wanted back: the removal goes on."""
    second = {**replicas_of(2), "name": "second"}
    await world.ready(roles=[replicas_of(1), second], entryRole="server")
    world.once_stored("Withdrawing", lambda: world.edit({"op": "remove", "path": "/spec/roles/1"}))
    await world.scale(1, role=1)
    found = await world.until(
        lambda d: not state(d) and condition(d, "RemovalsSettled")["reason"] == "NotSupportedYet"
    )
    assert await world.pod_names() == ["chat-second-r0-m0", KEEPER]
    assert "RetirementCancelled" not in await world.event_reasons()
    assert "chat-second-r0-m0" in condition(found, "RemovalsSettled")["message"]
    assert labelled(await world.pod("chat-second-r0-m0"))
