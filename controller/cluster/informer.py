"""A collection kept in memory, and the handlers that are told what changed in it.

Handlers are plain functions that run between two messages of the watch. They must return at once: they put a
key on a queue and nothing more. A filter decides before that, on the raw objects, so that an event nobody
needs costs a comparison.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import Random
from typing import NoReturn

from controller.clock import Clock
from controller.cluster.client import Client
from controller.cluster.reflector import Reflector
from controller.cluster.resources import Resource
from controller.cluster.store import Change, Event, Raw, Store, owner_uids

Handler = Callable[[Event, Raw | None, Raw | None], None]
Filter = Callable[[Raw | None, Raw | None], bool]


class Informer:
    """One kind of object, in one namespace or in all, behind a label selector.

    `synced` is set once the first list has been delivered. `run` goes on until it is cancelled; an exception
    out of it is a defect, and the process must not outlive it.
    """

    def __init__(
        self,
        *,
        client: Client,
        resource: Resource,
        clock: Clock,
        random: Random,
        namespace: str | None = None,
        selector: str = "",
        index: Callable[[Raw], Iterable[str]] = owner_uids,
    ) -> None:
        self.resource = resource
        self.store = Store(index=index)
        self.synced = asyncio.Event()
        self._handlers: list[tuple[Handler, Filter | None]] = []
        self._reflector = Reflector(
            client=client,
            resource=resource,
            sink=self,
            clock=clock,
            random=random,
            namespace=namespace,
            selector=selector,
        )

    def add_handler(self, handler: Handler, *, when: Filter | None = None) -> None:
        """Call `handler(event, old, new)` for every change for which `when(old, new)` holds."""
        self._handlers.append((handler, when))

    def silent_for(self) -> float | None:
        """Seconds since the API server last spoke about this collection; None before the first list."""
        return self._reflector.silent_for()

    async def run(self) -> NoReturn:
        await self._reflector.run()

    def written(self, raw: Raw) -> None:
        """Apply the answer to an own write at once, so that the next pass reads what this one wrote."""
        self._deliver(self.store.written(raw))

    @property
    def told(self) -> int:
        """Sink of the reflector."""
        return self.store.told

    def replace(self, objects: Iterable[Raw], *, version: int) -> None:
        """Sink of the reflector."""
        self._deliver(self.store.replace(objects, version=version))
        self.synced.set()

    def watched(self, raw: Raw) -> None:
        """Sink of the reflector."""
        self._deliver(self.store.watched(raw))

    def watched_deletion(self, raw: Raw) -> None:
        """Sink of the reflector."""
        self._deliver(self.store.watched_deletion(raw))

    def tell(self, version: int) -> None:
        """Sink of the reflector."""
        self.store.tell(version)

    def _deliver(self, changes: Iterable[Change]) -> None:
        for event, old, new in changes:
            for handler, when in self._handlers:
                if when is None or when(old, new):
                    handler(event, old, new)
