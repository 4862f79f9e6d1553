"""How many reads may run at once: exec goes past the API server's own fairness, so the limits are ours to keep."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final
from weakref import WeakValueDictionary

PER_MEMBER: Final = 1
PER_DEPLOYMENT: Final = 4
PER_NODE: Final = 4
IN_ALL: Final = 16


class Slots:
    """First come, first served within each limit. Semaphores live as long as somebody holds or awaits one."""

    def __init__(self) -> None:
        self._total = asyncio.Semaphore(IN_ALL)
        self._kept: WeakValueDictionary[tuple[str, str], asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def take(
        self, *, member: str, deployment: str, node: str, waiting: Callable[[str], None]
    ) -> AsyncGenerator[None, None]:
        """Hold a slot of each kind; `waiting` is told what for, so that a wait that runs out can say so.

        From the narrowest to the widest: whoever waits for its own member takes no slot from anybody else.
        """
        wanted = (
            (self._semaphore("member", member, PER_MEMBER), "another read of the same member"),
            (
                self._semaphore("deployment", deployment, PER_DEPLOYMENT),
                f"{PER_DEPLOYMENT} reads of its deployment",
            ),
            (self._semaphore("node", node, PER_NODE), f"{PER_NODE} reads on node {node}"),
            (self._total, f"{IN_ALL} reads in all"),
        )
        async with AsyncExitStack() as held:
            for semaphore, what in wanted:
                waiting(f"waiting for the end of {what}")
                await held.enter_async_context(semaphore)
            yield

    def _semaphore(self, kind: str, name: str, limit: int) -> asyncio.Semaphore:
        found = self._kept.get((kind, name))
        if found is None:
            found = self._kept[(kind, name)] = asyncio.Semaphore(limit)
        return found
