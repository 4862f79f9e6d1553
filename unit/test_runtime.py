"""What a process does with its Lease when its work ends, however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
import structlog

from controller.assembly import Controller
from controller.cluster.leader import LeaseLostError
from controller.runtime import _work
from unit.cluster.test_leader import Candidate, Place


class Work:
    """Stands where the controller stands: something that leads and then ends in a way of its own."""

    def __init__(self, error: Exception) -> None:
        self.ended = False
        self._error = error

    def start(
        self, group: asyncio.TaskGroup, *, workers: int, lead: Callable[[], Awaitable[None]]
    ) -> asyncio.Task[None]:
        group.create_task(self._until_cancelled())
        return group.create_task(self._fail(lead))

    async def _fail(self, lead: Callable[[], Awaitable[None]]) -> None:
        await lead()
        raise self._error

    async def _until_cancelled(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.ended = True


async def run(place: Place, work: Work, candidate: Candidate) -> None:
    controller: Any = cast(Controller, work)
    await _work(controller, candidate.elector, workers=1, log=structlog.get_logger("test"))


async def test_a_defect_gives_the_lease_up_after_everything_has_ended() -> None:
    """B06-01 A loop that breaks ends the process; all else ended before the Lease was released; another may lead."""
    place = Place()
    candidate = Candidate(place.server, place.clock, "first")
    work = Work(RuntimeError("a loop is broken"))
    ended: list[bool] = []
    place.server.on_write = lambda before, after: ended.append(work.ended) if not after else None
    with pytest.raises(ExceptionGroup) as caught:
        await run(place, work, candidate)
    assert caught.group_contains(RuntimeError, match="a loop is broken")
    assert place.server.holder == "" and not candidate.elector.leads
    assert ended == [True]


async def test_a_lost_lease_ends_the_process_with_one_sentence() -> None:
    """The end of a lease comes out as the one error that the command prints, not as a group of them."""
    place = Place()
    candidate = Candidate(place.server, place.clock, "first")
    work = Work(LeaseLostError("the Lease was last renewed 12.0 s ago"))
    with pytest.raises(LeaseLostError, match=r"last renewed 12\.0 s ago"):
        await run(place, work, candidate)
    assert work.ended
