"""What the engine has in flight: who runs, who waits for a slot, what became of the rest."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Work:
    """Counts follow a request at once; a real engine's follow within a quarter of a second."""

    def __init__(self, *, slots: int, ranks: int) -> None:
        self.ranks = ranks
        self.running: Counter[int] = Counter()
        """Requests being worked on, by data-parallel rank."""
        self.waiting: Counter[int] = Counter()
        self.ended: Counter[str] = Counter()
        """Requests over, by reason: `length`, `abort`."""
        self.generated = 0
        """Tokens so far."""
        self._slots = asyncio.Semaphore(slots)
        self._next_rank = 0

    @property
    def in_flight(self) -> int:
        return self.running.total() + self.waiting.total()

    @asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        """Wait for a slot, then hold it. Whatever ends the block early counts as an abort."""
        rank = self._next_rank
        self._next_rank = (rank + 1) % self.ranks
        reason = "abort"
        try:
            self.waiting[rank] += 1
            try:
                await self._slots.acquire()
            finally:
                self.waiting[rank] -= 1
            self.running[rank] += 1
            try:
                yield
                reason = "length"
            finally:
                self.running[rank] -= 1
                self._slots.release()
        finally:
            self.ended[reason] += 1
