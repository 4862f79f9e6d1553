"""A Clock whose time passes only when a test says so."""

from __future__ import annotations

import asyncio
import heapq
from datetime import UTC, datetime, timedelta
from itertools import count

from controller.clock import Instant

START = datetime(2030, 1, 1, tzinfo=UTC)


class VirtualClock:
    """Sleepers wake in the order of their deadlines; everything that is runnable runs before time goes on."""

    def __init__(self) -> None:
        self._now = 0.0
        self._serial = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def monotonic(self) -> float:
        return self._now

    def now(self) -> Instant:
        return Instant.exact(START + timedelta(seconds=self._now))

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._serial), future))
        await future

    async def settle(self) -> None:
        """Let every task run until it waits for time or for another task."""
        for _ in range(50):
            await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass."""
        target = self._now + seconds
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= target:
            due, _, future = heapq.heappop(self._sleepers)
            self._now = max(self._now, due)
            if not future.done():
                future.set_result(None)
                await self.settle()
        self._now = target
        await self.settle()
