"""Keys that need a pass: each at most once in the queue, and never in the hands of two workers.

The three sets of client-go's work queue. *Dirty* holds what needs a pass; *processing* what a worker has; a
key is *queued* when it is dirty and not processing. A key added while it is processed is queued again by
`done`, so no event is lost and none overlaps. What the first list brings stands behind what has just changed.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Hashable
from itertools import count
from random import Random
from typing import Final, Generic, TypeVar

from controller.clock import Clock

K = TypeVar("K", bound=Hashable)

BASE_SECONDS: Final = 0.5
MAXIMUM_SECONDS: Final = 60.0
"""Per-key backoff: 0.5 s, doubled up to a minute, with up to half as much again added at random."""


class ShutDownError(Exception):
    """The queue is shut down and has nothing left to hand out."""


class WorkQueue(Generic[K]):
    """See the module. All methods but `get` and `drained` return at once and belong to one event loop."""

    def __init__(self, *, clock: Clock, random: Random) -> None:
        self._clock = clock
        self._random = random
        # Dicts serve as ordered sets. The value in `dirty` says whether the key may stand behind fresh ones.
        self._dirty: dict[K, bool] = {}
        self._processing: set[K] = set()
        self._fresh: dict[K, None] = {}
        self._behind: dict[K, None] = {}
        self._failures: dict[K, int] = {}
        self._getters: list[asyncio.Future[None]] = []
        self._shut_down = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._due: dict[K, float] = {}
        self._timers: list[tuple[float, int, K]] = []
        self._serial = count()
        self._waker: asyncio.Task[None] | None = None
        self._waking_at = float("inf")

    def __len__(self) -> int:
        """How many keys wait for a worker."""
        return len(self._fresh) + len(self._behind)

    def add(self, key: K, *, behind: bool = False) -> None:
        """Ask for a pass over `key`; `behind` puts it behind every key that was added without."""
        if self._shut_down:
            return
        if key in self._dirty:
            if self._dirty[key] and not behind:
                self._dirty[key] = False
                if key in self._behind:
                    del self._behind[key]
                    self._fresh[key] = None
            return
        self._dirty[key] = behind
        if key not in self._processing:
            self._enqueue(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Add `key` once `seconds` have passed; of several requests the earliest counts."""
        if self._shut_down:
            return
        if seconds <= 0:
            self.add(key)
            return
        due = self._clock.monotonic() + seconds
        if due >= self._due.get(key, float("inf")):
            return
        self._due[key] = due
        heapq.heappush(self._timers, (due, next(self._serial), key))
        if due < self._waking_at:
            self._restart_waker()

    def add_rate_limited(self, key: K, *, at_least: float | None = None) -> float:
        """Add `key` after its own backoff, or after what the server asked for; returns the seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        seconds = min(BASE_SECONDS * 2.0 ** min(failures, 16), MAXIMUM_SECONDS)
        seconds = max(seconds, at_least or 0.0) * self._random.uniform(1.0, 1.5)
        self.add_after(key, seconds)
        return seconds

    def forget(self, key: K) -> None:
        """End the row of failures of `key`."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """The next key; it is the caller's until `done`. Raises ShutDownError once shut down and empty."""
        while not len(self):
            if self._shut_down:
                raise ShutDownError
            getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                if getter in self._getters:
                    self._getters.remove(getter)
                elif len(self):
                    self._wake_one()  # we were chosen and cannot come: let somebody else have the key
                raise
        lane = self._fresh or self._behind
        key = next(iter(lane))
        del lane[key]
        del self._dirty[key]
        self._processing.add(key)
        self._idle.clear()
        return key

    def done(self, key: K) -> None:
        """Give `key` back; when it was added meanwhile it is queued again."""
        self._processing.discard(key)
        if key in self._dirty:
            self._enqueue(key)
        elif not self._processing and not len(self):
            self._idle.set()

    def shut_down(self) -> None:
        """Take nothing more, drop what is only due later, and let workers finish what is queued."""
        self._shut_down = True
        self._timers.clear()
        self._due.clear()
        if self._waker is not None:
            self._waker.cancel()
        for getter in self._getters:
            if not getter.done():
                getter.set_result(None)
        self._getters.clear()

    @property
    def idle(self) -> bool:
        """Whether nothing is queued and nothing is processed; what is only due later does not count."""
        return self._idle.is_set()

    async def drained(self) -> None:
        """Wait until nothing is queued and nothing is processed."""
        await self._idle.wait()

    def _enqueue(self, key: K) -> None:
        (self._behind if self._dirty[key] else self._fresh)[key] = None
        self._idle.clear()
        self._wake_one()

    def _wake_one(self) -> None:
        while self._getters:
            getter = self._getters.pop(0)
            if not getter.done():
                getter.set_result(None)
                return

    def _restart_waker(self) -> None:
        if self._waker is not None:
            self._waker.cancel()
        self._waking_at = self._timers[0][0]
        self._waker = asyncio.get_running_loop().create_task(self._wake(), name="work queue timers")

    async def _wake(self) -> None:
        while self._timers:
            due, _, key = self._timers[0]
            self._waking_at = due
            left = due - self._clock.monotonic()
            if left > 0:
                await self._clock.sleep(left)
                continue
            heapq.heappop(self._timers)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)
        self._waking_at = float("inf")
