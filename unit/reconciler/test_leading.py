"""A whole controller that stands by, leads, and finds its lease over in the middle of its work."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from controller.assembly import Controller
from controller.cluster.leader import LeaseLostError
from controller.telemetry.metrics import Metrics
from unit.reconciler.wire import Wire
from unit.reconciler.world import Clients, World, new_world


class Lease:
    """A right to act that the test grants and takes away."""

    def __init__(self) -> None:
        self.granted = asyncio.Event()
        self.leads = False
        self.handing_over = False

    async def acquire(self) -> None:
        await self.granted.wait()
        self.leads = True

    def left(self) -> float:
        if not self.leads:
            raise LeaseLostError("the lease is over")
        return 5.0


async def two_pods(world: World, *, seconds: float = 20.0) -> None:
    """Until both replicas have a Pod and no request is open; in real time, since a standby's world is never quiet."""
    async with asyncio.timeout(seconds):
        while len(await world.pod_names()) < 2 or world.book.open:
            await asyncio.sleep(0.02)


async def test_standing_by_leading_and_losing(clients: Clients) -> None:
    """S7 A standby fills its caches and writes nothing; granted, it works; over, nothing is sent and all of it ends."""
    lease = Lease()
    async with new_world(clients, started=False) as world:
        controller = Controller(
            client=Wire(clients.controller, world.book, world.clock),
            fetch=world.routers,
            readers=world.engines,
            clock=world.clock,
            random=Random(7),
            metrics=Metrics(),
            instance="test",
            namespace=world.namespace,
            leadership=lease,
        )

        async def process() -> None:
            async with asyncio.TaskGroup() as group:
                controller.start(group, workers=2, lead=lease.acquire)

        running = asyncio.create_task(process())
        await world.create(router=None)
        async with asyncio.timeout(20):
            while not controller.caches.synced or not len(controller.queue):
                await asyncio.sleep(0.02)
        assert world.writes(events=True) == [] and not running.done()
        lease.granted.set()
        await two_pods(world)
        lease.leads = False
        mark = world.mark
        await world.scale(3)
        async with asyncio.timeout(20):
            with pytest.raises(ExceptionGroup) as caught:
                await running
        assert caught.group_contains(LeaseLostError, match="the lease is over")
        assert world.writes(since=mark, events=True) == []
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert [task.get_name() for task in others if task.get_name().startswith("worker ")] == []
