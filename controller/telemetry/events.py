"""Kubernetes Events for what a user should see in `kubectl describe`: transitions, never repetitions.

Emitting returns at once and cannot fail a pass: an Event is written beside it, tried a few times and then
dropped with a line in the log. The name of an Event is chosen before the first attempt, so a repeated one
cannot double it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any, Final, Literal, NoReturn

import structlog

from controller.clock import Clock, format_time
from controller.cluster.client import ApiError, NoAnswerError

REPORTER: Final = "ebb.dev/controller"
MAX_NOTE: Final = 1024
"""Longest note that the API takes, in bytes."""
MAX_WAITING: Final = 1000
ATTEMPTS: Final = 4
RETRY_SECONDS: Final = 1.0

EventType = Literal["Normal", "Warning"]
Create = Callable[[str, Mapping[str, Any]], Awaitable[object]]
"""Creates one Event: namespace, body."""

_log = structlog.get_logger(__name__)


class EventRecorder:
    """Writes Events through `create`. `instance` names this process, usually by its Pod."""

    def __init__(self, *, create: Create, clock: Clock, random: Random, instance: str) -> None:
        self._create = create
        self._clock = clock
        self._random = random
        self._instance = instance
        self._waiting: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue(MAX_WAITING)

    def emit(
        self,
        regarding: Mapping[str, Any],
        *,
        type: EventType,  # noqa: A002 - the API's own name
        reason: str,
        message: str,
    ) -> None:
        """Say `message` about an object. Returns at once."""
        event = self._event(regarding, type=type, reason=reason, message=message)
        try:
            self._waiting.put_nowait((event["metadata"]["namespace"], event))
        except asyncio.QueueFull:
            _log.warning("an event is dropped: too many wait to be written", reason=reason, note=message)

    async def run(self) -> NoReturn:
        """Write what was emitted, in order, until cancelled."""
        while True:
            namespace, event = await self._waiting.get()
            await self._write(namespace, event)
            self._waiting.task_done()

    async def flushed(self) -> None:
        """Wait until everything emitted so far is written or dropped."""
        await self._waiting.join()

    async def _write(self, namespace: str, event: Mapping[str, Any]) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                await self._create(namespace, event)
                return
            except ApiError as error:
                if error.already_exists:
                    return
                failure: Exception = error
                if attempt == ATTEMPTS or (error.definite and error.status != 429):
                    break
            except NoAnswerError as error:
                failure = error
                if attempt == ATTEMPTS:
                    break
            await self._clock.sleep(RETRY_SECONDS * 2 ** (attempt - 1))
        _log.warning("an event is dropped", reason=event["reason"], note=event["note"], error=str(failure))

    def _event(
        self,
        regarding: Mapping[str, Any],
        *,
        type: EventType,  # noqa: A002
        reason: str,
        message: str,
    ) -> dict[str, Any]:
        metadata = regarding["metadata"]
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{metadata['name']}.{self._random.getrandbits(64):016x}",
                "namespace": metadata["namespace"],
            },
            "eventTime": format_time(self._clock.now().earliest),
            "type": type,
            "reason": reason,
            "action": reason,
            "note": _cut(message),
            "reportingController": REPORTER,
            "reportingInstance": self._instance[:128],
            "regarding": {
                "apiVersion": regarding["apiVersion"],
                "kind": regarding["kind"],
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
                "resourceVersion": metadata.get("resourceVersion", ""),
            },
        }


def _cut(message: str) -> str:
    if len(message.encode()) <= MAX_NOTE:
        return message
    return message.encode()[: MAX_NOTE - 3].decode("utf-8", "ignore") + "…"
