"""The same invariants from the API server's own account of what was asked of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from e2e.cluster import ControlPlane
from e2e.harness.audit import api_writes, broken_invariants, deletes_of_pods
from unit.reconciler.conftest import USER
from unit.reconciler.deployments import settled
from unit.reconciler.world import TARGET, World

pytestmark = pytest.mark.control_plane


async def test_audit_log(plane: ControlPlane, world: World) -> None:
    """B6 The audit log tells the writes that the client recorded, and they break no invariant."""
    await world.ready()
    uid = (await world.pod(TARGET)).uid
    await world.scale(1)
    await world.until(settled)
    events: list[dict[str, Any]] = [
        event
        for line in plane.audit_log.read_text(encoding="utf-8").splitlines()
        if (event := json.loads(line)).get("objectRef", {}).get("namespace") == world.namespace
    ]
    told = [str(write) for write in api_writes(events, user=USER) if write.own]
    assert sorted(told) == sorted(str(write) for write in world.writes(events=True))
    assert broken_invariants(events, user=USER) == []
    [delete] = deletes_of_pods(event for event in events if event["user"]["username"] == USER)
    assert delete["requestObject"]["preconditions"]["uid"] == uid
    # What somebody else does in the controller's name is found: the same log with the delete before its reservation.
    events.insert(0, events.pop(events.index(delete)))
    assert any(breach.startswith(("S1", "S2")) for breach in broken_invariants(events, user=USER))
