"""Rollouts on a real node: edits that turn replicas over while they serve."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from apis.v1alpha1 import labels
from e2e.harness.audit import broken_invariants, deletes_of_pods
from e2e.harness.controller import ControllerProcess
from e2e.harness.objects import MODEL, model_deployment
from e2e.harness.scope import Scope
from e2e.harness.waiting import wait_for
from e2e.images import build
from e2e.load import Load

pytestmark = pytest.mark.cluster

NAMES = tuple(f"chat-server-r{ordinal}-m0" for ordinal in range(3))
ROLE = "/spec/roles/0"
LEAST_PROMPTS = 5


def start(scope: Scope, **changes: Any) -> dict[str, str]:
    """The deployment `chat` of three replicas, whole; their UIDs."""
    scope.apply(model_deployment("chat", namespace=scope.namespace, replicas=3, **changes))
    scope.wait_ready("chat")
    if changes.get("routed", True):
        scope.wait_workers("chat", 3)
    return uids(scope)


def uids(scope: Scope) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in scope.pods("chat", "server")}


def edit(scope: Scope, **fields: Any) -> None:
    """Set fields of the role."""
    patch = [{"op": "add", "path": f"{ROLE}/{name}", "value": value} for name, value in fields.items()]
    scope.kubectl("patch", "md", "chat", "--type=json", "-p", json.dumps(patch))


def env(value: str) -> list[dict[str, str]]:
    return [{"name": "EDITED", "value": value}]


def slots(scope: Scope) -> list[tuple[int, str]]:
    found = (scope.deployment("chat").get("status") or {}).get("rollout") or []
    return [(slot["replicaOrdinal"], slot["phase"]) for slot in found]


def wait_rolled_out(scope: Scope, *, seconds: float) -> None:
    def done() -> bool:
        found = scope.condition("chat", "ReplicasUpToDate")
        generation = scope.deployment("chat")["metadata"]["generation"]
        return found.get("status") == "True" and found.get("observedGeneration") == generation

    wait_for("every replica to be up to date", done, seconds=seconds)
    scope.wait_ready("chat")


def steps_told(scope: Scope) -> list[str]:
    """The notes of the Events, one a replica."""
    found = scope.objects("events.events.k8s.io")
    return [event["note"] for event in found if event["reason"] == "RolloutStep"]


def own_invariants(scope: Scope) -> list[str]:
    return broken_invariants(scope.requests(), user=scope.user)


async def test_edit_under_load(scope: Scope, controller: ControllerProcess) -> None:
    """An edit of three replicas under streaming load through the router: 0 cut, 0 failed, one replica at a time."""
    before = await asyncio.to_thread(start, scope)
    open_at_delete: dict[int, int] = {}
    async with Load(seed=11) as load:
        load.start(scope.router_url("chat"), clients=9, seconds_range=(3.0, 9.0), model=MODEL)
        while min(load.open_on(name, min_left=2.0) for name in NAMES) < 1:
            await asyncio.sleep(0.05)
        edit(scope, env=env("once"))
        until = time.monotonic() + 240
        while True:
            found = await asyncio.to_thread(slots, scope)
            assert len(found) <= 1
            for ordinal, phase in found:
                if phase == "Leaving":
                    open_now = load.open_on(NAMES[ordinal])
                    open_at_delete[ordinal] = max(open_now, open_at_delete.get(ordinal, 0))
            condition = await asyncio.to_thread(scope.condition, "chat", "ReplicasUpToDate")
            if condition["status"] == "True" and len(open_at_delete) == 3:
                break
            assert time.monotonic() < until, f"the rollout did not end: {condition}; {open_at_delete}"
            await asyncio.sleep(0.1)
        # The last successor serves, too.
        await asyncio.sleep(5)
        await load.stop(drain=True)
        losses = [(loss.pod, loss.error) for loss in load.book.losses()]
        served = load.tally().finished
    assert losses == []
    # Void otherwise: nobody was there to be cut.
    assert load.distinct_prompts >= LEAST_PROMPTS and served > 20
    assert set(open_at_delete) == {0, 1, 2} and min(open_at_delete.values()) >= 1, open_at_delete
    after = uids(scope)
    assert set(after) == set(NAMES) and not set(after.values()) & set(before.values())
    deletes = deletes_of_pods(scope.writes())
    assert [d["objectRef"]["name"] for d in deletes] == list(reversed(NAMES))
    assert [d["requestObject"]["preconditions"]["uid"] for d in deletes] == [
        before[n] for n in reversed(NAMES)
    ]
    # Withdrawn by its deletion timestamp alone: no label was ever taken off.
    assert [w for w in scope.writes() if w["verb"] == "patch" and w["objectRef"]["resource"] == "pods"] == []
    told = steps_told(scope)
    assert len(told) == 3 and all("changed: spec.containers[main].env[EDITED]" in note for note in told)
    assert own_invariants(scope) == []


def test_broken_image_then_a_newer_edit(scope: Scope, controller: ControllerProcess) -> None:
    """An image that cannot be had costs one replica and no more; the next edit takes over its slot and finishes."""
    before = start(scope, routed=False)
    edit(scope, image="ebb.local/sample-engine:none")
    wait_for("the first successor", lambda: slots(scope) == [(2, "Starting")], seconds=40)
    broken = wait_for("its Pod", lambda: uids(scope).get(NAMES[2], ""), seconds=10)
    time.sleep(15)
    found = scope.condition("chat", "ReplicasUpToDate")
    assert found["reason"] == "RollingOut"
    assert "server/1 waits until server/2 is Ready" in found["message"]
    for name in NAMES[:2]:
        assert uids(scope)[name] == before[name] and scope.is_ready(name)
    edit(scope, image=build("sample-engine").reference, env=env("newer"))
    wait_for("the broken one to give way", lambda: uids(scope).get(NAMES[2], broken) != broken, seconds=30)
    wait_rolled_out(scope, seconds=120)
    after = uids(scope)
    assert not set(after.values()) & {*before.values(), broken}
    deleted = [d["requestObject"]["preconditions"]["uid"] for d in deletes_of_pods(scope.writes())]
    assert deleted == [before[NAMES[2]], broken, before[NAMES[1]], before[NAMES[0]]]
    assert own_invariants(scope) == []


def test_grace(scope: Scope, controller: ControllerProcess) -> None:
    """J2 30 for unset is no edit; 60 turns all over, and each leaves with the 30 s that it was created with."""
    before = start(scope, routed=False)
    edit(scope, terminationGracePeriodSeconds=30)
    wait_rolled_out(scope, seconds=10)
    time.sleep(3)
    assert uids(scope) == before and deletes_of_pods(scope.writes()) == []
    edit(scope, terminationGracePeriodSeconds=60)
    graces: dict[str, int] = {}

    def turned_over() -> bool:
        for pod in scope.pods("chat", "server"):
            if "deletionGracePeriodSeconds" in pod["metadata"]:
                graces.setdefault(pod["metadata"]["uid"], pod["metadata"]["deletionGracePeriodSeconds"])
        condition = scope.condition("chat", "ReplicasUpToDate")
        return bool(condition["status"] == "True" and len(graces) == len(NAMES))

    wait_for("all to be turned over", turned_over, seconds=120)
    assert graces == dict.fromkeys(before.values(), 30)
    deletes = deletes_of_pods(scope.writes())
    assert [d["requestObject"]["preconditions"]["uid"] for d in deletes] == [
        before[n] for n in reversed(NAMES)
    ]
    assert all("gracePeriodSeconds" not in d["requestObject"] for d in deletes)
    for pod in scope.pods("chat", "server"):
        assert pod["spec"]["terminationGracePeriodSeconds"] == 60
        assert pod["metadata"]["labels"][labels.ENDPOINT_ELIGIBLE] == "true"
