"""The controller killed before and after every single write of a retirement: the same end, on the same clocks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Literal

import pytest

from controller.cluster.client import Response
from unit.invariants import ApiWrite
from unit.reconciler.deployments import Raw, operation, settled, states_stored
from unit.reconciler.wire import Call, Send, straight
from unit.reconciler.world import KEEPER, TARGET, WHOLE_PATH, Clients, World, new_world

pytestmark = pytest.mark.control_plane

AT_ONCE: Final = 12
"""Worlds that run beside each other: most of a case is waiting for the API server."""

When = Literal["before", "after"]


async def retire(world: World) -> tuple[list[ApiWrite], Raw]:
    """2 → 1 to the end; what was written (Events, too), and the deployment at last."""
    mark = world.mark
    await world.scale(1)
    await world.until(settled)
    return world.writes(since=mark, events=True), await world.deployment()


async def crash(clients: Clients, number: int, when: When, unperturbed: Raw) -> None:
    """One life: killed at the write of that number, started anew at once, and then to the end."""
    async with new_world(clients) as world:
        await world.ready()
        keeper, target = await world.pod(KEEPER), await world.pod(TARGET)
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
        await world.scale(1)
        await world.until(lambda _: world.crashed, what=f"write {number}")
        await world.kill()
        world.interpose(straight)
        await world.start()
        await world.until(settled)
        writes = world.writes(since=mark)
        assert states_stored(writes) == WHOLE_PATH
        assert len(clocks(writes)) == 1, "startedAt or deadline moved"
        assert {write.uid for write in writes if write.verb == "delete"} == {target.uid}
        assert await world.pod(KEEPER) == keeper, "the keeper was written to"
        assert await world.pod_names() == [KEEPER]
        assert without_times(await world.deployment()) == without_times(unperturbed)


def clocks(writes: Sequence[ApiWrite]) -> set[tuple[str, str]]:
    """What was ever stored as (startedAt, deadline)."""
    records = [operation(write.answer) for write in writes if write.is_of("modeldeployments", "status")]
    return {(record["startedAt"], record["deadline"]) for record in records if record}


def without_times(deployment: Raw) -> Raw:
    """The status as it must be the same in every life."""
    status: Raw = dict(deployment["status"])
    status["conditions"] = [{**c, "lastTransitionTime": ""} for c in status["conditions"]]
    status["endpoint"] = ""
    return status


@pytest.mark.parametrize("when", ["before", "after"])
async def test_crash_around_every_write(clients: Clients, when: When) -> None:
    """B4 Killed before or after any write of 2→1: the same operation ends as if nothing had happened, S1 to S6 kept."""
    async with new_world(clients) as world:
        await world.ready()
        writes, unperturbed = await retire(world)
    assert len(writes) > 10
    room = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, write: ApiWrite) -> None:
        async with room:
            try:
                await crash(clients, number, when, unperturbed)
            except BaseException as error:
                error.add_note(f"killed {when} write {number}: {write}")
                raise

    cases = (one(number, write) for number, write in enumerate(writes, start=1))
    results = await asyncio.gather(*cases, return_exceptions=True)
    failures = [result for result in results if isinstance(result, Exception)]
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {len(writes)} lives ended otherwise", failures)
