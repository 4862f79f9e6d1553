"""Edits that turn replicas over: the order, the gate, the slot, and what may come between."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Literal

import pytest

from apis.v1alpha1 import labels
from controller.cluster.client import ApiError, Response
from controller.cluster.resources import EVENTS, PODS
from unit.invariants import ApiWrite
from unit.reconciler.deployments import Raw, condition, labelled, replicas_of, settled, state, states_stored
from unit.reconciler.test_crashes import AT_ONCE, without_times
from unit.reconciler.wire import Call, Send, straight
from unit.reconciler.world import KEEPER, TARGET, THIRD, WHOLE_PATH, Clients, World, new_world

pytestmark = pytest.mark.control_plane

NAMES: Final = (KEEPER, TARGET, THIRD)
MINUTES: Final = 600.0


async def set_image(world: World, image: str) -> None:
    await world.edit({"op": "replace", "path": "/spec/roles/0/image", "value": image})


def rolled_out(deployment: Raw) -> bool:
    """Every replica runs this very spec, and is Ready."""
    status = deployment["status"]
    current = status["observedGeneration"] == deployment["metadata"]["generation"]
    return current and {c["status"] for c in status["conditions"]} == {"True"}


def up_to_date(deployment: Raw) -> tuple[str, str]:
    """Reason and message of ReplicasUpToDate, of the newest generation."""
    found = condition(deployment, "ReplicasUpToDate")
    current = found.get("observedGeneration") == deployment["metadata"]["generation"]
    return (found["reason"], found["message"]) if current else ("", "")


def slots(deployment: Raw) -> list[tuple[int, str]]:
    return [(slot["replicaOrdinal"], slot["phase"]) for slot in deployment["status"].get("rollout") or ()]


def deletes(writes: Sequence[ApiWrite]) -> list[str]:
    return [write.name for write in writes if write.verb == "delete" and write.done]


async def uids(world: World) -> dict[str, str]:
    return {name: (await world.pod(name)).uid for name in await world.pod_names()}


async def images(world: World) -> set[str]:
    return {(await world.pod(name)).spec["containers"][0]["image"] for name in await world.pod_names()}


def watch_deletes(world: World, seen: list[Raw]) -> None:
    """Remember how every replica was at the moment of each delete that the controller sends, and what was stored."""

    async def between(call: Call, send: Send) -> Response:
        if call.is_("delete", PODS.plural):
            pods = {name: await world.pod(name) for name in await world.pod_names()}
            seen.append({"of": call.name, "pods": pods, "deployment": await world.deployment()})
        return await send()

    world.interpose(between)


async def notes(world: World) -> list[str]:
    found = await world.api.request("GET", EVENTS.path(namespace=world.namespace))
    return [event["note"] for event in found.body["items"] if event["reason"] == "RolloutStep"]


async def test_edit_turns_every_replica_over(world: World) -> None:
    """K2 One after another from the highest ordinal, each by UID with its label on from a whole role; then silence."""
    await world.ready(roles=[replicas_of(3)])
    before = await uids(world)
    seen: list[Raw] = []
    watch_deletes(world, seen)
    mark = world.mark
    await set_image(world, "engine:2")
    await world.until(rolled_out)
    assert [each["of"] for each in seen] == [THIRD, TARGET, KEEPER]
    for each in seen:
        assert all(pod.ready and labelled(pod) and not pod.terminating for pod in each["pods"].values())
        [slot] = each["deployment"]["status"]["rollout"]
        assert slot["uids"] == [before[each["of"]]] and slot["phase"] == "Leaving"
        assert condition(each["deployment"], "ReplicasUpToDate")["reason"] == "RollingOut"
    sent = [write.body["preconditions"] for write in world.writes(since=mark) if write.verb == "delete"]
    assert sent == [{"uid": before[name]} for name in (THIRD, TARGET, KEEPER)]
    assert not set(before.values()) & set((await uids(world)).values())
    assert await images(world) == {"engine:2"}
    assert slots(await world.deployment()) == []
    told = await notes(world)
    assert len(told) == 3 and all(note.endswith("changed: spec.containers[main].image") for note in told)
    mark = world.mark
    await world.let_pass(MINUTES)
    assert world.writes(since=mark, events=True) == []


async def test_roles_roll_in_parallel(world: World) -> None:
    """An edit of two roles takes one replica of each at the same time."""
    second = {**replicas_of(2), "name": "second"}
    await world.ready(roles=[replicas_of(2), second], entryRole="server")
    world.kubelet.not_ended |= {TARGET, "chat-second-r1-m0"}
    await world.edit(
        *({"op": "replace", "path": f"/spec/roles/{role}/image", "value": "engine:2"} for role in (0, 1))
    )
    found = await world.until(lambda d: len(slots(d)) == 2)
    await world.let_pass(MINUTES)
    assert {slot["roleName"] for slot in found["status"]["rollout"]} == {"server", "second"}
    assert slots(await world.deployment()) == [(1, "Leaving"), (1, "Leaving")]
    world.kubelet.not_ended.clear()
    await world.until(rolled_out)


class TestBrokenImage:
    """An image that never gets Ready."""

    async def test_takes_no_healthy_replica_down_and_can_be_fixed(self, world: World) -> None:
        """One replica is lost to it, whatever time passes; the next edit replaces that one in place, then the rest."""
        await world.ready(roles=[replicas_of(3)])
        before = await uids(world)
        world.kubelet.not_ready.add(THIRD)
        await set_image(world, "broken:1")
        await world.let_pass(MINUTES)
        found = await world.deployment()
        assert slots(found) == [(2, "Starting")]
        reason, message = up_to_date(found)
        assert reason == "RollingOut" and "the successor of server/2 is not Ready yet" in message
        assert "server/1 waits until server/2 is Ready" in message
        broken = await uids(world)
        assert {name: broken[name] for name in (KEEPER, TARGET)} == {
            name: before[name] for name in (KEEPER, TARGET)
        }
        world.kubelet.not_ready.clear()
        mark = world.mark
        await set_image(world, "engine:3")
        await world.until(rolled_out)
        assert deletes(world.writes(since=mark)) == [THIRD, TARGET, KEEPER]
        first = next(write for write in world.writes(since=mark) if write.verb == "delete")
        assert first.uid == broken[THIRD] and first.conditional, (
            "what was not Ready goes at the judged version"
        )
        assert await images(world) == {"engine:3"}

    async def test_undone(self, world: World) -> None:
        """The edit undone: only the replica that was lost to it is made anew, the others keep their Pods."""
        await world.ready(roles=[replicas_of(3)])
        before = await uids(world)
        world.kubelet.not_ready.add(THIRD)
        await set_image(world, "broken:1")
        await world.until(lambda d: slots(d) == [(2, "Starting")])
        world.kubelet.not_ready.clear()
        await set_image(world, "engine:1")
        await world.until(rolled_out)
        after = await uids(world)
        assert [name for name in NAMES if after[name] != before[name]] == [THIRD]

    async def test_ready_at_the_last_moment(self, world: World) -> None:
        """A broken one that gets Ready between the read and its delete refuses with a conflict and is judged again."""
        await world.ready(roles=[replicas_of(3)])
        await world.kubelet.set_ready(TARGET, False)
        await world.settle()
        late = [TARGET]

        async def recover_first(call: Call, send: Send) -> Response:
            if call.is_("delete", PODS.plural) and call.name in late:
                late.remove(call.name)
                await world.kubelet.set_ready(call.name, True)
            return await send()

        world.interpose(recover_first)
        mark = world.mark
        await set_image(world, "engine:2")
        await world.until(rolled_out)
        assert not late
        first = next(write for write in world.writes(since=mark) if write.verb == "delete")
        assert (first.name, first.code) == (TARGET, 409)
        # Healthy now, it leaves like any other one: its step was begun, so it is the first.
        assert deletes(world.writes(since=mark)) == [TARGET, THIRD, KEEPER]


class TestNewerEdit:
    """An edit in the middle of the rollout of another."""

    async def test_supersedes_in_place(self, world: World) -> None:
        """While a successor starts: its slot goes over to it, no other replica leaves for that, all end on the last."""
        await world.ready(roles=[replicas_of(3)])
        world.kubelet.not_started.add(THIRD)
        await set_image(world, "engine:2")
        await world.until(lambda d: slots(d) == [(2, "Starting")])
        await world.settle()
        half = await world.pod(THIRD)
        mark = world.mark
        await set_image(world, "engine:3")
        await world.let_pass(MINUTES)
        assert slots(await world.deployment()) == [(2, "Starting")]
        [gone] = [write for write in world.writes(since=mark) if write.verb == "delete"]
        assert (gone.name, gone.uid) == (THIRD, half.uid)
        world.kubelet.not_started.clear()
        await world.until(rolled_out)
        assert await images(world) == {"engine:3"}
        assert deletes(world.writes(since=mark)) == [THIRD, TARGET, KEEPER]

    async def test_back_and_forth(self, world: World) -> None:
        """B08-07 A, B, A, B while a replica leaves: all end on B; the one that was replaced is not replaced again."""
        await world.ready(roles=[replicas_of(3)])
        world.kubelet.not_ended.add(THIRD)
        await set_image(world, "engine:2")
        await world.until(lambda d: slots(d) == [(2, "Leaving")])
        for image in ("engine:1", "engine:2"):
            await set_image(world, image)
            await world.settle()
        world.kubelet.not_ended.clear()
        await world.until(rolled_out)
        assert await images(world) == {"engine:2"}
        assert deletes(world.writes()) == [THIRD, TARGET, KEEPER]

    async def test_replicas_in_the_middle(self, world: World) -> None:
        """B08-02 3, then 5, then 4 in the middle: healthy ones leave only from a whole role; all end on the edit."""
        await world.ready(roles=[replicas_of(3)])
        seen: list[Raw] = []
        watch_deletes(world, seen)
        await set_image(world, "engine:2")
        await world.until(lambda d: slots(d) == [(1, "Leaving")])
        await world.scale(5)
        await world.until(lambda d: d["status"]["roles"][0]["ready"] >= 4)
        await world.scale(4)
        await world.until(lambda d: settled(d) and rolled_out(d), within=120)
        assert await images(world) == {"engine:2"} and len(await world.pod_names()) == 4
        for each in seen:
            away = [name for name, pod in each["pods"].items() if pod.terminating or not pod.ready]
            assert not away or not each["deployment"]["status"].get("rollout"), each["of"]


class TestNothingStarts:
    """What keeps a rollout from beginning; it goes on once that is over."""

    async def waits(self, world: World, why: str) -> None:
        before = await uids(world)
        await world.let_pass(MINUTES)
        found = await world.deployment()
        reason, message = up_to_date(found)
        assert reason == "RolloutWaiting" and why in message, message
        assert await uids(world) == before and slots(found) == []
        assert deletes(world.writes()) == []

    async def test_paused(self, world: World) -> None:
        """Paused: no step, also not for a broken replica; taken off, it rolls."""
        await world.ready()
        await world.annotate(labels.PAUSED, "true")
        await world.kubelet.set_ready(KEEPER, False)
        await set_image(world, "engine:2")
        await self.waits(world, "while the deployment is paused")
        await world.annotate(labels.PAUSED, None)
        await world.until(rolled_out)

    async def test_refused_create(self, world: World) -> None:
        """A Pod cannot be made: no replica is given up for another one; it rolls once Pods can be made."""
        await world.ready()

        async def refuse(call: Call, send: Send) -> Response:
            if call.is_("create", PODS.plural):
                raise ApiError(status=403, reason="Forbidden", message="exceeded quota: none left")
            return await send()

        world.interpose(refuse)
        await world.scale(3)
        await world.settle()
        await set_image(world, "engine:2")
        await self.waits(world, "exceeded quota: none left")
        world.interpose(straight)
        await world.until(rolled_out, within=90)

    async def test_another_one_is_not_ready(self, world: World) -> None:
        """A replica of the new spec is not Ready: the healthy old one stays until it is."""
        await world.ready()
        await world.kubelet.set_ready(KEEPER, False)
        world.kubelet.not_ready.add(KEEPER)
        await set_image(world, "engine:2")
        await world.let_pass(MINUTES)
        found = await world.deployment()
        assert "server/1 waits until server/0 is Ready" in up_to_date(found)[1]
        assert deletes(world.writes()) == [KEEPER]
        await world.kubelet.set_ready(KEEPER, True)
        await world.until(rolled_out)
        assert deletes(world.writes()) == [KEEPER, TARGET]

    async def test_refused_delete(self, world: World) -> None:
        """A delete that the API server refuses is told with its sentence and tried again."""
        await world.ready()

        async def refuse(call: Call, send: Send) -> Response:
            if call.is_("delete", PODS.plural):
                raise ApiError(status=403, reason="Forbidden", message="no deletes today")
            return await send()

        world.interpose(refuse)
        await set_image(world, "engine:2")
        found = await world.until(lambda d: up_to_date(d)[0] == "RolloutWaiting")
        assert f"{TARGET} cannot be deleted: no deletes today" in up_to_date(found)[1]
        world.interpose(straight)
        await world.until(rolled_out, within=90)


class TestBesideRemovals:
    """A rollout and a retirement at the same time."""

    async def test_goes_on_while_a_replica_retires(self, world: World) -> None:
        """C1, K7 The retiring one is neither replaced nor hurried, and keeps what it runs; the others turn over."""
        await world.ready(roles=[replicas_of(3)])
        retiring = await world.pod(THIRD)
        world.engines.in_flight[THIRD] = 1
        await world.scale(2)
        await world.until(lambda d: state(d) == "Draining")
        await set_image(world, "engine:2")
        found = await world.until(lambda d: up_to_date(d)[0] == "UpToDate")
        assert state(found) == "Draining" and (await world.pod(THIRD)).uid == retiring.uid
        assert deletes(world.writes()) == [TARGET, KEEPER]
        world.engines.in_flight.clear()
        await world.until(settled)
        assert states_stored(world.writes()) == WHOLE_PATH
        assert await images(world) == {"engine:2"}

    async def test_given_up_and_declared_again(self, world: World) -> None:
        """An aborted replica is not replaced while the spec takes it away; declared again, it is."""
        shortest = {"withdrawSeconds": 12, "drainSeconds": 10, "settleSeconds": 5, "totalSeconds": 27}
        await world.ready(retirement=shortest)
        before = await uids(world)
        world.engines.in_flight[TARGET] = 1
        await world.scale(1)
        await world.until(lambda d: state(d) == "Aborted")
        await set_image(world, "engine:2")
        await world.until(lambda d: up_to_date(d)[0] == "UpToDate")
        assert (await world.pod(TARGET)).uid == before[TARGET]
        await world.scale(2)
        await world.until(rolled_out)
        assert await images(world) == {"engine:2"}


async def test_grace_edit(world: World) -> None:
    """J2 30 onto unset turns nothing over; 60 does, each leaving replica with the 30 it was created with."""
    await world.ready()
    before = await uids(world)
    path = "/spec/roles/0/terminationGracePeriodSeconds"
    await world.edit({"op": "add", "path": path, "value": 30})
    await world.let_pass(MINUTES)
    assert await uids(world) == before and up_to_date(await world.deployment())[0] == "UpToDate"
    world.kubelet.not_ended |= {KEEPER, TARGET}
    await world.edit({"op": "replace", "path": path, "value": 60})
    await world.until(lambda d: slots(d) == [(1, "Leaving")])
    await world.settle()
    leaving = await world.pod(TARGET)
    assert leaving.terminating and leaving.deletion_grace_seconds == 30
    world.kubelet.not_ended.clear()
    await world.until(rolled_out)
    assert (await world.pod(TARGET)).spec["terminationGracePeriodSeconds"] == 60
    assert all(note.endswith("changed: spec.terminationGracePeriodSeconds") for note in await notes(world))


When = Literal["before", "after"]


async def crash(clients: Clients, number: int, when: When, unperturbed: Raw) -> None:
    """One life: killed at the write of that number, started anew at once, and then to the end."""
    async with new_world(clients) as world:
        await world.ready()
        before = await uids(world)
        left = number

        async def die_there(call: Call, send: Send) -> Response:
            nonlocal left
            left -= call.writes
            if left or not call.writes:
                return await send()
            if when == "after":
                await send()
            return await world.die()

        world.interpose(die_there)
        mark = world.mark
        await set_image(world, "engine:2")
        await world.until(lambda _: world.crashed, what=f"write {number}")
        await world.kill()
        seen: list[Raw] = []
        watch_deletes(world, seen)
        await world.start()
        await world.until(rolled_out)
        for each in seen:
            others = {name: pod for name, pod in each["pods"].items() if name != each["of"]}
            assert len(others) == 1 and all(pod.ready and not pod.terminating for pod in others.values())
        taken = {write.uid for write in world.writes(since=mark) if write.verb == "delete"}
        assert taken == set(before.values()), "a successor was replaced, or an old one not"
        assert without_times(await world.deployment()) == without_times(unperturbed)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_crash_around_every_write(clients: Clients, when: When) -> None:
    """L6 Killed before or after any write of a rollout: one replica at a time leaves, and none leaves twice."""
    async with new_world(clients) as world:
        await world.ready()
        mark = world.mark
        await set_image(world, "engine:2")
        await world.until(rolled_out)
        writes, unperturbed = world.writes(since=mark, events=True), await world.deployment()
    assert len(writes) > 8
    room = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, write: ApiWrite) -> None:
        async with room:
            try:
                await crash(clients, number, when, unperturbed)
            except BaseException as error:
                error.add_note(f"killed {when} write {number}: {write}")
                raise

    cases = (one(number, write) for number, write in enumerate(writes, start=1))
    results: list[Any] = await asyncio.gather(*cases, return_exceptions=True)
    failures = [result for result in results if isinstance(result, Exception)]
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {len(writes)} lives ended otherwise", failures)
