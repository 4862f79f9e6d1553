"""Keeps a sink equal to one collection of the API server: list, watch, and list again when the watch has lost
its place.

What can go wrong is told apart, because the answers differ: an expired version (410 as a status, as an ERROR
event, as a bare Status, in the middle of paging) needs a new list; a refusal, a break or an overloaded server
needs patience and the same version; a message that cannot be read costs that message only. Nothing here gives
up: a collection that stays away is named in the log, more and more rarely, and `silent_for` grows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from random import Random
from typing import Any, Final, NoReturn, Protocol

import orjson
import structlog

from controller.clock import Clock
from controller.cluster.backoff import Backoff
from controller.cluster.client import ApiError, Client, NoAnswerError
from controller.cluster.resources import Resource
from controller.cluster.store import MalformedObjectError, Raw, version_of

PAGE: Final = 500
LIST_SECONDS: Final = 60.0
"""How long one page may take: 500 Pods are about 5 MB."""

WATCH_SECONDS: Final = (300, 600)
"""For how long a watch is asked, at random between these, so that watches do not end together."""

INACTIVITY_SECONDS: Final = 90.0
"""A watch that says nothing for so long is taken for dead: the server sends a bookmark about once a minute."""

SHORT_WATCH_SECONDS: Final = 1.0
"""A watch that ends sooner than this without a word has failed, whatever its status said."""

EMPTY_WATCHES: Final = 5
"""After so many of those in a row the version itself is doubted and a new list is made."""

STALE_LISTS: Final = 6
"""After so many lists in a row that are older than what was seen (about half a minute) history itself is gone."""

_log = structlog.get_logger(__name__)


class Sink(Protocol):
    """Where the reflector puts what it hears; the informer's store."""

    @property
    def told(self) -> int:
        """The version up to which everything has been told; 0 before the first list."""
        ...

    def replace(self, objects: Iterable[Raw], *, version: int) -> None: ...
    def watched(self, raw: Raw) -> None: ...
    def watched_deletion(self, raw: Raw) -> None: ...
    def tell(self, version: int) -> None: ...


class ExpiredError(Exception):
    """The API server has forgotten the version that the watch or the list went on from."""


class HistoryLostError(Exception):
    """The API server's versions went backwards for good: it was restored from a backup.

    Nothing in memory can be compared with it any more; the process must start afresh.
    """


class _WatchFailedError(Exception):
    """The watch itself said that it failed, or ended without a word."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Reflector:
    """Lists and watches `resource`, in one namespace or in all, behind a label selector."""

    def __init__(
        self,
        *,
        client: Client,
        resource: Resource,
        sink: Sink,
        clock: Clock,
        random: Random,
        namespace: str | None = None,
        selector: str = "",
    ) -> None:
        self._client = client
        self._resource = resource
        self._sink = sink
        self._clock = clock
        self._random = random
        self._path = resource.path(namespace=namespace)
        self._query = {"labelSelector": selector} if selector else {}
        self._backoff = Backoff(monotonic=clock.monotonic, random=random)
        self._heard_at: float | None = None
        self._log = _log.bind(resource=resource.plural, namespace=namespace or "*")

    def silent_for(self) -> float | None:
        """Seconds since the API server last spoke of this collection; None before its first list."""
        return None if self._heard_at is None else self._clock.monotonic() - self._heard_at

    async def run(self) -> NoReturn:
        """Go on until cancelled. An exception out of here is a defect of the program, or of a handler."""
        while True:
            try:
                version = await self._list()
                while True:
                    version = await self._watch(version)
            except ExpiredError as error:
                await self._wait("the version has expired, listing again", error)

    async def _list(self) -> int:
        """Deliver the whole collection; returns its version. Tries until it succeeds.

        A list older than what was told before comes from a server that lags behind: believed, it would bring
        back what was deleted.
        """
        stale = 0
        while True:
            try:
                objects, version = await self._pages()
            except ApiError as error:
                if error.status == 410:
                    raise ExpiredError(str(error)) from error
                await self._wait("the list was refused", error, at_least=error.retry_after)
            except (NoAnswerError, MalformedObjectError) as error:
                await self._wait("the list had no answer", error)
            else:
                self._hear()
                if version >= self._sink.told:
                    self._sink.replace(objects, version=version)
                    return version
                stale += 1
                lag = f"it is of version {version}, and {self._sink.told} has been seen"
                if stale == STALE_LISTS:
                    raise HistoryLostError(f"{self._resource.plural}: {stale} lists were too old: {lag}")
                await self._wait("the list is too old", lag)

    async def _pages(self) -> tuple[list[Raw], int]:
        objects: list[Raw] = []
        query = {**self._query, "limit": str(PAGE)}
        while True:
            answer = await self._client.request("GET", self._path, query=query, timeout=LIST_SECONDS)
            page = answer.body
            if not isinstance(page, dict) or not isinstance(page.get("metadata"), dict):
                raise MalformedObjectError("the answer is not a list")
            objects += [raw for item in page.get("items") or () if (raw := self._entered(item)) is not None]
            token = page["metadata"].get("continue")
            if not token:
                return objects, version_of(page["metadata"].get("resourceVersion"))
            query["continue"] = token

    async def _watch(self, version: int) -> int:
        """One watch from `version`; returns the version to go on from. Raises ExpiredError."""
        place = _Place(version)
        empty = 0
        while True:
            before = place.version
            try:
                await self._watch_once(place)
                return place.version
            except ApiError as error:
                if error.status == 410:
                    raise ExpiredError(str(error)) from error
                await self._wait("the watch was refused", error, at_least=error.retry_after)
            except NoAnswerError as error:
                await self._wait("the watch broke", error)
            except _WatchFailedError as error:
                empty = empty + 1 if place.version == before else 0
                if empty == EMPTY_WATCHES:
                    raise ExpiredError(f"{empty} watches in a row ended without a word") from error
                await self._wait("the watch failed", error, at_least=error.retry_after)

    async def _watch_once(self, place: _Place) -> None:
        started = self._clock.monotonic()
        query = {
            **self._query,
            "watch": "1",
            "resourceVersion": str(place.version),
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self._random.randint(*WATCH_SECONDS)),
        }
        stream = self._client.stream_lines(self._path, query=query, inactivity=INACTIVITY_SECONDS)
        async with aclosing(stream) as lines:
            heard = await self._take_lines(lines, place)
        if not heard and self._clock.monotonic() - started < SHORT_WATCH_SECONDS:
            raise _WatchFailedError("it ended at once without a word")

    async def _take_lines(self, lines: AsyncIterator[bytes], place: _Place) -> bool:
        heard = False
        async for line in lines:
            self._hear()
            try:
                heard |= self._take(line, place)
            except (MalformedObjectError, orjson.JSONDecodeError) as error:
                self._log.warning("a watch event cannot be read and is skipped", error=str(error))
        return heard

    def _take(self, line: bytes, place: _Place) -> bool:
        """Hand one line on; returns whether it spoke of an object. Raises for what cannot be read."""
        message = orjson.loads(line)
        if not isinstance(message, dict):
            raise MalformedObjectError("the event is not an object")
        kind, found = message.get("type"), message.get("object")
        if kind == "ERROR" or message.get("kind") == "Status":
            _raise_for_error(found if kind == "ERROR" else message)
        if kind == "BOOKMARK":
            version = version_of(_metadata(found).get("resourceVersion"))
            self._sink.tell(version)
        elif kind in ("ADDED", "MODIFIED", "DELETED"):
            raw = self._entered(found)
            if raw is None:
                return False
            version = version_of(raw["metadata"]["resourceVersion"])
            if kind == "DELETED":
                self._sink.watched_deletion(raw)
            else:
                self._sink.watched(raw)
        else:
            raise MalformedObjectError(f"unknown type {kind!r}")
        place.version = max(place.version, version)
        return bool(kind != "BOOKMARK")

    def _entered(self, item: Any) -> Raw | None:
        """The object as it is kept: without managedFields, with the kind that lists leave out."""
        try:
            metadata = _metadata(item)
            version_of(metadata.get("resourceVersion"))
            if not (isinstance(metadata.get("name"), str) and isinstance(metadata.get("uid"), str)):
                raise MalformedObjectError("an object without name or UID")
        except MalformedObjectError as error:
            self._log.warning("an object cannot be read and is skipped", error=str(error))
            return None
        metadata.pop("managedFields", None)
        item.setdefault("apiVersion", self._resource.api_version)
        item.setdefault("kind", self._resource.kind)
        raw: Raw = item
        return raw

    def _hear(self) -> None:
        self._heard_at = self._clock.monotonic()

    async def _wait(self, what: str, error: object, *, at_least: float | None = None) -> None:
        seconds = self._backoff.next(at_least=at_least)
        self._log.warning(what, error=str(error), again_in=round(seconds, 1))
        await self._clock.sleep(seconds)


class _Place:
    """How far a watch has come."""

    def __init__(self, version: int) -> None:
        self.version = version


def _metadata(item: Any) -> dict[str, Any]:
    metadata = item.get("metadata") if isinstance(item, dict) else None
    if not isinstance(metadata, dict):
        raise MalformedObjectError("an object without metadata")
    return metadata


def _raise_for_error(status: Any) -> NoReturn:
    found = status if isinstance(status, dict) else {}
    message = str(found.get("message") or found.get("reason") or "an error without an explanation")
    if found.get("code") == 410 or found.get("reason") in ("Expired", "Gone"):
        raise ExpiredError(message)
    details = found.get("details")
    seconds = details.get("retryAfterSeconds") if isinstance(details, dict) else None
    raise _WatchFailedError(message, retry_after=float(seconds) if isinstance(seconds, int) else None)
