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

    def __init__(self, *, start: datetime = START, error: float = 0.0) -> None:
        """`error`: seconds by which the server's time may be off either way, as a real clock's is."""
        self._start = start
        self._error = timedelta(seconds=error)
        self._now = 0.0
        self._serial = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def monotonic(self) -> float:
        return self._now

    def now(self) -> Instant:
        moment = self._start + timedelta(seconds=self._now)
        return Instant(earliest=moment - self._error, latest=moment + self._error)

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._serial), future))
        await future

    def next_due(self) -> float | None:
        """When, on `monotonic`, the next sleeper wakes; None while nobody sleeps."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

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
