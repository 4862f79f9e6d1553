"""2 → 1 and its variants, driven to the end through the stored states."""

from __future__ import annotations

from typing import Any, Final

import pytest

from controller.clock import parse_time
from controller.cluster.client import Response
from controller.cluster.resources import MODEL_DEPLOYMENTS, PODS
from unit.reconciler.deployments import (
    condition,
    labelled,
    operation,
    phase,
    replicas_of,
    settled,
    state,
    states_stored,
)
from unit.reconciler.wire import Call, Send
from unit.reconciler.world import KEEPER, NAME, TARGET, THIRD, WHOLE_PATH, World

pytestmark = pytest.mark.control_plane

UNRENDERABLE: Final = {"op": "add", "path": "/spec/roles/0/extraArgs", "value": ["--a=b", "word"]}
"""The CRD lets this edit through; the controller sees that `word` would be read as a model."""


async def test_two_to_one(world: World) -> None:
    """B5, B6 2→1 to the end: every state once and in order, one delete with the admitted UID, the keeper untouched."""
    await world.ready()
    keeper, target = await world.pod(KEEPER), await world.pod(TARGET)
    mark = world.mark
    await world.scale(1)
    await world.until(settled)
    writes = world.writes(since=mark)
    assert states_stored(writes) == WHOLE_PATH
    [delete] = [write for write in writes if write.verb == "delete"]
    assert (delete.name, delete.uid, delete.conditional) == (TARGET, target.uid, False)
    assert await world.pod(KEEPER) == keeper, "the keeper was written to"
    assert await world.pod_names() == [KEEPER]
    found = await world.deployment()
    assert phase(found) == "Ready" and found["status"]["roleSummary"] == "1R1S"
    assert await world.event_reasons() == [
        "RetirementAdmitted",
        "RetirementDraining",
        "RetirementDeleting",
        "RetirementCompleted",
    ]
    # 5 s of settling after the first clean look, two reads, and the looks that they wait for.
    assert world.clock.monotonic() < 10
    mark = world.mark
    await world.let_pass(600)
    assert world.writes(since=mark, events=True) == []


async def test_admission(world: World) -> None:
    """B3 What is stored first: seat, members with their baseline, generation, and clocks that begin together."""
    await world.ready()
    target = await world.pod(TARGET)
    mark = world.mark
    await world.scale(1)
    await world.until(lambda d: bool(operation(d)))
    first = next(write for write in world.writes(since=mark) if write.resource == "modeldeployments")
    record = first.answer["status"]["retirement"]
    assert (record["roleName"], record["replicaOrdinal"], record["cause"]) == ("server", 1, "ReplicasReduced")
    assert record["targetMembers"] == [
        {"uid": target.uid, "name": TARGET, "containerID": target.identity.container_id, "restartCount": 0}
    ]
    assert record["observedGeneration"] == first.answer["metadata"]["generation"]
    assert record["startedAt"] == record["phaseStartedAt"]
    span = parse_time(record["deadline"]) - parse_time(record["startedAt"])
    assert (record["state"], span.total_seconds()) == ("Admitted", 300)
    assert [
        w for w in world.writes(since=mark)[: world.writes(since=mark).index(first)] if w.is_of("pods")
    ] == []


async def test_back_to_two(world: World) -> None:
    """B1 Once the operation is cleared the ordinal is made anew when the spec wants it, and not before."""
    await world.ready()
    before = (await world.pod(TARGET)).uid
    world.kubelet.not_ended.add(TARGET)
    await world.scale(1)
    await world.until(lambda d: state(d) == "Deleting" and "deleted;" in d["status"]["retirement"]["reason"])
    await world.scale(2)
    await world.let_pass(20)
    assert state(await world.deployment()) == "Deleting"
    assert (await world.pod(TARGET)).uid == before
    world.kubelet.not_ended.clear()
    await world.until(lambda d: phase(d) == "Ready" and not operation(d))
    assert (await world.pod(TARGET)).uid not in ("", before)


async def test_one_at_a_time(world: World) -> None:
    """C4 3→1: ordinal 2 first and alone while ordinal 1 waits by name, then ordinal 1; never another one."""
    await world.ready(roles=[replicas_of(3)])
    mark = world.mark
    await world.scale(1)
    found = await world.until(lambda d: state(d) == "Draining")
    assert operation(found)["replicaOrdinal"] == 2
    message = condition(found, "RemovalsSettled")["message"]
    assert "server/2 is being retired; server/1 stays until the removal of server/2 is over" in message
    assert labelled(await world.pod(TARGET))
    await world.until(settled)
    deletes = [write.name for write in world.writes(since=mark) if write.verb == "delete"]
    assert deletes == [THIRD, TARGET]
    assert states_stored(world.writes(since=mark)) == WHOLE_PATH * 2


async def test_edit_between_read_and_write(world: World) -> None:
    """A spec edited between the read and the write of an admission conflicts, and the new spec decides."""
    await world.ready()
    edits = iter([3])

    async def edit_first(call: Call, send: Send) -> Response:
        if call.stores_state == "Admitted":
            for replicas in edits:
                await world.scale(replicas)
        return await send()

    world.interpose(edit_first)
    mark = world.mark
    await world.scale(1)
    await world.until(lambda d: phase(d) == "Ready" and d["status"]["roles"][0]["desired"] == 3)
    refused = [write for write in world.writes(since=mark) if write.code == 409]
    assert [write.resource for write in refused] == ["modeldeployments"]
    assert await world.pod_names() == [KEEPER, TARGET, THIRD]
    assert await world.event_reasons() == []


async def test_busy_engine_is_waited_for(world: World) -> None:
    """A6, G17 A busy engine holds the delete, its number is told, no clock moves, and writes are rationed."""
    await world.ready()
    world.engines.in_flight[TARGET] = 3
    await world.scale(1)
    found = await world.until(lambda d: "3 in flight" in operation(d).get("reason", ""))
    mark = world.mark
    await world.let_pass(100)
    later = await world.deployment()
    for clock in ("startedAt", "deadline", "phaseStartedAt"):
        assert operation(later)[clock] == operation(found)[clock]
    assert operation(later)["inFlight"] == 3
    assert len(world.writes(since=mark)) <= 1, "an unchanged figure is not written again"
    world.engines.in_flight[TARGET] = 0
    await world.until(settled, within=20)


async def test_row_that_stays_is_removed(world: World) -> None:
    """A router that goes on listing the target holds the withdrawal; 3 s later the row is removed by its API."""
    await world.ready()
    address = (await world.pod(TARGET)).ip
    world.routers.kept_rows.add(address)
    await world.scale(1)
    found = await world.until(lambda d: state(d) == "Withdrawing" and world.clock.monotonic() > 1)
    assert f"still lists {address}" in operation(found)["reason"]
    assert world.routers.removals == []
    await world.until(settled)
    assert world.routers.removals == [address]


async def test_unreachable_router_holds(world: World) -> None:
    """F3 A router that cannot be asked is unknown: held until it answers, also where a row had to be removed by API."""
    await world.ready()
    world.routers.kept_rows.add((await world.pod(TARGET)).ip)
    world.routers.unremovable = True
    await world.scale(1)
    await world.until(lambda d: state(d) == "Withdrawing" and world.clock.monotonic() > 6)
    world.routers.unreachable = True
    found = await world.until(lambda d: "connection refused" in operation(d).get("reason", ""))
    assert state(found) == "Withdrawing"
    world.routers.unreachable = world.routers.unremovable = False
    await world.until(settled)


async def test_evidence_that_aged_is_read_again(world: World) -> None:
    """N4, A8 `Deleting` stored, the controller away for a minute, a request begins: read again, held until idle."""
    await world.ready()
    world.once_stored("Deleting", world.die)
    await world.scale(1)
    found = await world.until(lambda _: world.crashed)
    await world.kill()
    await world.let_pass(60)
    world.engines.in_flight[TARGET] = 1
    reads = len(world.engines.reads)
    await world.start()
    await world.let_pass(60)
    held = await world.deployment()
    assert state(held) == "Deleting" and "1 in flight" in operation(held)["reason"]
    assert not (await world.pod(TARGET)).terminating
    world.engines.in_flight[TARGET] = 0
    await world.until(settled, within=30)
    assert len(world.engines.reads) >= reads + 2
    for clock in ("startedAt", "deadline"):
        assert operation(held)[clock] == operation(found)[clock]


async def test_late_departure(world: World) -> None:
    """N3 60 s past its deletion timestamp a target is departing: the next removal runs, its seat stays empty."""
    await world.ready(roles=[replicas_of(3)])
    world.kubelet.not_ended.add(THIRD)

    async def end_at_once(call: Call, send: Send) -> Response:
        # The time of this world runs ahead of the server's: the next grace that it stamps is long over.
        answer = await send()
        if call.is_("delete", "pods"):
            await world.kubelet.act()
        return answer

    world.interpose(end_at_once)
    await world.scale(1)
    found = await world.until(lambda d: bool(d["status"].get("departing")), within=120)
    late = await world.pod(THIRD)
    assert late.deletion_timestamp is not None
    assert world.clock.now().seconds_since(late.deletion_timestamp) >= 60
    [departure] = found["status"]["departing"]
    assert (departure["replicaOrdinal"], departure["uids"]) == (2, [late.uid])
    found = await world.until(lambda d: not operation(d) and d["status"]["roles"][0]["ready"] == 1)
    assert condition(found, "RemovalsSettled")["reason"] == "DepartureStuck"
    assert (await world.pod(TARGET)).uid == ""
    await world.scale(3)
    await world.until(lambda d: d["status"]["roles"][0]["ready"] == 2)
    await world.kubelet.end(late)
    await world.until(lambda d: phase(d) == "Ready" and "departing" not in d["status"])
    assert (await world.pod(THIRD)).uid not in ("", late.uid)
    assert "DepartureStuck" in await world.event_reasons()


async def test_spec_that_turns_invalid(world: World) -> None:
    """N8 An invalid spec in Draining: told with its path, the operation ends normally, nothing else starts or fills."""
    await world.ready(roles=[replicas_of(3)])
    world.engines.in_flight[THIRD] = 1
    await world.scale(2)
    await world.until(lambda d: state(d) == "Draining")
    await world.edit(UNRENDERABLE, {"op": "replace", "path": "/spec/roles/0/replicas", "value": 1})
    found = await world.until(lambda d: condition(d, "SpecValid")["status"] == "False")
    assert "spec.roles[0].extraArgs[1]: 'word'" in condition(found, "SpecValid")["message"]
    world.engines.in_flight.clear()
    found = await world.until(lambda d: not operation(d))
    assert await world.pod_names() == [KEEPER, TARGET]
    waits = condition(found, "RemovalsSettled")
    assert (waits["status"], waits["reason"]) == ("False", "SpecInvalid")
    await world.delete_pod(KEEPER)
    await world.delete_pod(TARGET)
    await world.let_pass(120)
    found = await world.deployment()
    assert await world.pod_names() == []
    assert "server 0/1" in condition(found, "RolesReady")["message"]
    await world.edit({"op": "remove", "path": "/spec/roles/0/extraArgs"})
    await world.until(lambda d: phase(d) == "Ready")
    assert await world.pod_names() == [KEEPER]


async def test_paused_while_running(world: World) -> None:
    """A pause in the middle of an operation lets it go on to its end."""
    await world.ready()
    await world.scale(1)
    await world.until(lambda d: state(d) == "Withdrawing")
    await world.annotate("ebb.dev/paused", "true")
    await world.until(settled)
    assert await world.pod_names() == [KEEPER]


@pytest.mark.parametrize("state_before", ["Admitted", "Draining", "Deleting"])
async def test_deployment_deleted_meanwhile(world: World, state_before: str) -> None:
    """The deployment deleted meanwhile: the operation is dropped, Pods leave by UID, then the finalizer goes."""
    await world.ready()
    uids = {(await world.pod(name)).uid for name in (KEEPER, TARGET)}
    world.engines.in_flight[TARGET] = int(state_before == "Draining")
    world.kubelet.not_ended |= {KEEPER, TARGET}
    mark = world.mark
    world.once_stored(state_before, lambda: world.delete(MODEL_DEPLOYMENTS, NAME))
    await world.scale(1)
    found = await world.until(lambda d: phase(d) == "Deleting")
    assert not operation(found)
    world.kubelet.not_ended.clear()
    await world.until(lambda d: not d, what="the end of the deployment")
    deletes = [write for write in world.writes(since=mark) if write.verb == "delete"]
    assert {write.uid for write in deletes} == uids and len(deletes) == 2
    await world.let_pass(60)
    assert await world.pod_names() == []


async def test_deleted_and_made_again(world: World) -> None:
    """Deleted and recreated at once: names that the dead one's objects hold are waited for, no error is told."""
    await world.ready()
    leftovers = await world.owned_objects()
    await world.delete(MODEL_DEPLOYMENTS, NAME)
    await world.until(lambda d: not d)
    body: dict[str, Any] = await world.create()
    await world.until(lambda d: d["status"].get("roles", [{}])[0].get("ready") == 2)
    await world.let_pass(60)
    found = await world.deployment()
    assert condition(found, "SpecValid")["status"] == "True"
    for resource, name in leftovers:
        await world.delete(resource, name)
    await world.until(lambda d: phase(d) == "Ready", within=65)
    assert await world.owned_objects(uid=body["metadata"]["uid"]) == leftovers
    assert len(leftovers) == 7 and await world.get(PODS, KEEPER)
