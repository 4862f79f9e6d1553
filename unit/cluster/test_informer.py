"""Reflector and informer against a scripted API server, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from random import Random
from typing import Any

import orjson
import pytest

from controller.cluster.client import ApiError, NoAnswerError, Response
from controller.cluster.informer import Informer
from controller.cluster.reflector import (
    EMPTY_WATCHES,
    INACTIVITY_SECONDS,
    PAGE,
    STALE_LISTS,
    HistoryLostError,
)
from controller.cluster.resources import PODS
from controller.cluster.store import Event, Raw
from unit.cluster.objects import pod
from unit.cluster.virtual_clock import VirtualClock

Step = Callable[[], AsyncIterator[bytes]] | Exception | Sequence[bytes]


class ScriptedServer:
    """Answers lists and watches in the order of two scripts; the last step of each is repeated."""

    def __init__(self, clock: VirtualClock, *, lists: Sequence[object], watches: Sequence[Step]) -> None:
        self._clock = clock
        self._lists = list(lists)
        self._watches = list(watches)
        self.listed: list[tuple[float, dict[str, str]]] = []
        self.watched: list[tuple[float, dict[str, str]]] = []

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        timeout: float = 10.0,
    ) -> Response:
        assert (method, path) == ("GET", "/api/v1/namespaces/ns/pods")
        self.listed.append((self._clock.monotonic(), dict(query or {})))
        answer = self._lists.pop(0) if len(self._lists) > 1 else self._lists[0]
        if isinstance(answer, Exception):
            raise answer
        return Response(status=200, body=orjson.loads(orjson.dumps(answer)))

    async def stream_lines(
        self, path: str, *, query: Mapping[str, str], inactivity: float
    ) -> AsyncGenerator[bytes, None]:
        assert inactivity == INACTIVITY_SECONDS
        self.watched.append((self._clock.monotonic(), dict(query)))
        step = self._watches.pop(0) if len(self._watches) > 1 else self._watches[0]
        if isinstance(step, Exception):
            raise step
        if callable(step):
            async for line in step():
                yield line
        else:
            for line in step:
                yield line

    def exec_channels(
        self, *, namespace: str, pod: str, container: str, argv: Sequence[str], timeout: float
    ) -> AbstractAsyncContextManager[AsyncIterator[tuple[int, bytes]]]:
        raise AssertionError("an informer runs nothing")


def a_list(*items: Raw, version: int = 10, token: str = "") -> dict[str, Any]:
    return {
        "kind": "PodList",
        "metadata": {"resourceVersion": str(version), "continue": token},
        "items": items,
    }


def event(kind: str, raw: object) -> bytes:
    return orjson.dumps({"type": kind, "object": raw})


def bookmark(version: int) -> bytes:
    return event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(version)}})


def error(code: int, reason: str, **details: object) -> bytes:
    return event(
        "ERROR", {"kind": "Status", "code": code, "reason": reason, "message": reason, "details": details}
    )


async def forever() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


def then_forever(*lines: bytes) -> Callable[[], AsyncIterator[bytes]]:
    async def step() -> AsyncIterator[bytes]:
        for line in lines:
            yield line
        await asyncio.Event().wait()

    return step


def gone(code: int = 410) -> ApiError:
    return ApiError(status=code, reason="Expired", message="too old resource version")


class Running:
    """An informer at work on a script."""

    def __init__(self, *, lists: Sequence[object], watches: Sequence[Step], selector: str = "") -> None:
        self.clock = VirtualClock()
        self.server = ScriptedServer(self.clock, lists=lists, watches=watches)
        self.seen: list[tuple[str, str]] = []
        self.informer = Informer(
            client=self.server,
            resource=PODS,
            clock=self.clock,
            random=Random(7),
            namespace="ns",
            selector=selector,
        )
        self.informer.add_handler(self._note)
        self.task: asyncio.Task[object] | None = None

    def _note(self, event: Event, old: Raw | None, new: Raw | None) -> None:
        found = new if new is not None else old
        assert found is not None
        self.seen.append((event.name, found["metadata"]["uid"]))

    @property
    def versions(self) -> list[str]:
        """The versions that watches began from."""
        return [query["resourceVersion"] for _, query in self.server.watched]

    @asynccontextmanager
    async def __call__(self, seconds: float = 0.0) -> AsyncGenerator[None, None]:
        self.task = asyncio.create_task(self.informer.run())
        await self.clock.advance(seconds)
        try:
            yield
        finally:
            self.task.cancel()
            with suppress(asyncio.CancelledError, HistoryLostError, ZeroDivisionError):
                await self.task


async def test_a_list_is_taken_in_pages_and_watched_from_its_version() -> None:
    """The list comes in pages of one selector; the watch starts at its version, with bookmarks and a time limit."""
    running = Running(
        lists=[a_list(pod("a", 1), token="next"), a_list(pod("b", 2), version=10)],
        watches=[forever],
        selector="app=ebb",
    )
    async with running():
        assert running.informer.synced.is_set()
        assert running.seen == [("LISTED", "uid-a"), ("LISTED", "uid-b")]
    (_, first), (_, second) = running.server.listed
    assert first == {"labelSelector": "app=ebb", "limit": str(PAGE)}
    assert second == {**first, "continue": "next"}
    [(_, watch)] = running.server.watched
    assert 300 <= int(watch.pop("timeoutSeconds")) <= 600
    assert watch == {
        "labelSelector": "app=ebb", "watch": "1", "resourceVersion": "10", "allowWatchBookmarks": "true",
    }  # fmt: skip


async def test_nothing_is_synced_before_the_whole_list() -> None:
    """Half a list is no list: nothing is delivered until the last page has come."""
    running = Running(lists=[a_list(pod("a", 1), token="next"), NoAnswerError("reset")], watches=[forever])
    async with running(60):
        assert running.seen == []
        assert not running.informer.synced.is_set()
        assert running.informer.silent_for() is None


async def test_objects_are_kept_without_managed_fields_and_with_their_kind() -> None:
    """managedFields are dropped on entry; what lists leave out (kind, apiVersion) is filled in."""
    item = pod("a", 1)
    del item["kind"], item["apiVersion"]
    item["metadata"]["managedFields"] = [{"manager": "x"}]
    running = Running(lists=[a_list(item)], watches=[forever])
    async with running():
        raw = running.informer.store.get("ns", "a")
    assert raw is not None
    assert "managedFields" not in raw["metadata"]
    assert (raw["apiVersion"], raw["kind"]) == ("v1", "Pod")


async def test_a_watch_that_is_cut_goes_on_where_it_was() -> None:
    """A watch closed after every three events delivers each object once and never lists again."""
    steps = [
        [event("ADDED", pod(f"p{n}", 100 + n)) for n in range(start, start + 3)] for start in range(0, 30, 3)
    ]
    running = Running(lists=[a_list()], watches=[*steps, forever])
    async with running(60):
        assert running.seen == [("ADDED", f"uid-p{n}") for n in range(30)]
        assert len(running.server.listed) == 1
        assert running.versions == ["10", *(str(102 + n) for n in range(0, 30, 3))]


async def test_a_bookmark_moves_the_version_and_reaches_no_handler() -> None:
    """A bookmark is where the next watch begins, and nothing else."""
    running = Running(lists=[a_list()], watches=[[bookmark(77)], forever])
    async with running(60):
        assert running.versions == ["10", "77"]
        assert running.seen == []
        assert running.informer.store.told == 77


@pytest.mark.parametrize(
    "expired",
    [
        gone(),
        [error(410, "Expired")],
        [error(0, "Gone")],
        [orjson.dumps({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})],
    ],
    ids=["status", "error event", "error event without a code", "plain body"],
)
async def test_an_expired_version_is_listed_again_once(expired: Step) -> None:
    """410 in each of its forms: one new list, and what vanished meanwhile is told as deleted."""
    running = Running(
        lists=[a_list(pod("a", 1), pod("b", 2)), a_list(pod("b", 2), version=50)], watches=[expired, forever]
    )
    async with running(60):
        assert len(running.server.listed) == 2
        assert running.versions == ["10", "50"]
        assert running.seen[2:] == [("DELETED", "uid-a")]


async def test_an_expired_page_starts_the_list_anew() -> None:
    """410 in the middle of paging begins again with the first page."""
    running = Running(
        lists=[a_list(pod("a", 1), token="next"), gone(), a_list(pod("b", 2), version=20)], watches=[forever]
    )
    async with running(60):
        assert [query.get("continue") for _, query in running.server.listed] == [None, "next", None]
        assert running.seen == [("LISTED", "uid-b")]


async def test_repeated_expiry_backs_off() -> None:
    """A server that expires every version is asked less and less often."""
    running = Running(lists=[a_list()], watches=[gone()])
    async with running(60):
        assert len(running.server.listed) <= 8


@pytest.mark.parametrize(
    "failure",
    [
        NoAnswerError("connection refused"),
        ApiError(status=503, reason="Unrecognized", message="<html>"),
        ApiError(status=500, reason="InternalError", message="etcd"),
        ApiError(status=403, reason="Forbidden", message="cannot watch"),
        [error(500, "InternalError")],
    ],
    ids=["refused", "503", "500", "403", "error event"],
)
async def test_a_failure_waits_and_keeps_the_version(failure: Step) -> None:
    """A watch that fails is begun again from the same version after a wait; nothing is listed again."""
    running = Running(
        lists=[a_list(pod("a", 1))], watches=[failure, failure, then_forever(event("DELETED", pod("a", 11)))]
    )
    async with running(60):
        assert len(running.server.listed) == 1
        assert running.versions == ["10"] * 3
        (first, _), (second, _), (third, _) = running.server.watched
        assert second - first >= 0.8
        assert third - second >= 1.6
        assert running.seen == [("LISTED", "uid-a"), ("DELETED", "uid-a")]


async def test_retry_after_is_obeyed() -> None:
    """A 429 with Retry-After: 7 is not asked again within 7 s, for a watch and for a list."""
    busy = ApiError(status=429, reason="TooManyRequests", message="slow down", retry_after=7.0)
    running = Running(lists=[busy, a_list()], watches=[busy, forever])
    async with running(60):
        (first, _), (second, _) = running.server.listed
        assert second - first >= 7
        (third, _), (fourth, _) = running.server.watched
        assert fourth - third >= 7


@pytest.mark.parametrize("word", [[], [bookmark(10)]], ids=["nothing", "a bookmark"])
async def test_a_watch_that_ends_at_once_is_no_success(word: list[bytes]) -> None:
    """A server that closes every watch at once, with a bookmark at most, is asked less than once a second."""
    running = Running(lists=[a_list()], watches=[word])
    async with running(30):
        assert len(running.server.watched) + len(running.server.listed) < 30


async def test_empty_watches_bring_the_version_into_doubt() -> None:
    """After a few watches in a row that ended at once, the collection is listed again."""
    running = Running(lists=[a_list()], watches=[*[[]] * EMPTY_WATCHES, forever])
    async with running(120):
        assert len(running.server.listed) == 2


@pytest.mark.parametrize(
    "line",
    [
        event("ADDED", {"kind": "Pod", "metadata": None}),
        event("ADDED", {"kind": "Pod", "metadata": {"name": "x", "uid": "x"}}),
        event("MODIFIED", {"kind": "Pod", "metadata": {"name": "x", "uid": "x", "resourceVersion": "None"}}),
        event("ADDED", {"kind": "Pod", "metadata": {"resourceVersion": "12"}}),
        event("ADDED", None),
        event("BOOKMARK", {"kind": "Pod", "metadata": {}}),
        event("FOO", pod("x", 999)),
        b'{"type":"ADDED","object":{"metadata":{"name":"\xff"}}}',
        b"{",
        b"[]",
        b"null",
    ],
)
async def test_a_message_that_cannot_be_read_costs_itself_only(line: bytes) -> None:
    """A malformed message reaches no handler and moves no version; the ones around it are delivered."""
    running = Running(
        lists=[a_list()],
        watches=[[event("ADDED", pod("a", 11)), line, event("ADDED", pod("b", 12))], forever],
    )
    async with running(60):
        assert running.seen == [("ADDED", "uid-a"), ("ADDED", "uid-b")]
        assert running.versions == ["10", "12"]


async def test_an_object_that_cannot_be_read_does_not_cost_the_list() -> None:
    """One malformed object in a list is left out; the others are there."""
    running = Running(lists=[a_list(pod("a", 1), {"metadata": None}, pod("b", 2))], watches=[forever])
    async with running():
        assert running.seen == [("LISTED", "uid-a"), ("LISTED", "uid-b")]


async def test_a_lagging_server_is_not_believed() -> None:
    """A list older than what was seen is refused and asked again; what it would have brought back stays deleted."""
    running = Running(
        lists=[a_list(pod("a", 1), version=10), a_list(pod("a", 1), version=15), a_list(version=30)],
        watches=[[event("DELETED", pod("a", 20))], gone(), forever],
    )
    async with running(60):
        assert running.seen == [("LISTED", "uid-a"), ("DELETED", "uid-a")]
        assert len(running.server.listed) == 3


async def test_a_restored_history_ends_the_process() -> None:
    """A server whose versions have gone back for good is named by an exception, not waited for without end."""
    running = Running(lists=[a_list(version=1000), a_list(version=3)], watches=[gone()])
    async with running(300):
        assert running.task is not None
        with pytest.raises(HistoryLostError, match=rf"pods: {STALE_LISTS} lists .* version 3, and 1000"):
            await running.task


async def test_a_failing_handler_is_not_hidden() -> None:
    """An exception of a handler ends the informer with it: nobody goes on with a cache that told half of it."""
    running = Running(lists=[a_list(pod("a", 1))], watches=[forever])

    def fail(event: Event, old: Raw | None, new: Raw | None) -> None:
        raise ZeroDivisionError

    running.informer.add_handler(fail)
    async with running():
        assert running.task is not None
        with pytest.raises(ZeroDivisionError):
            await running.task


async def test_a_filter_decides_before_the_handler() -> None:
    """A handler is called only for changes that its filter lets through."""
    running = Running(
        lists=[a_list(pod("a", 1, spec=1))],
        watches=[
            then_forever(event("MODIFIED", pod("a", 11, spec=1)), event("MODIFIED", pod("a", 12, spec=2)))
        ],
    )
    seen: list[int] = []

    def changed(old: Raw | None, new: Raw | None) -> bool:
        return old is not None and new is not None and old["spec"] != new["spec"]

    def note(event: Event, old: Raw | None, new: Raw | None) -> None:
        assert new is not None
        seen.append(new["spec"])

    running.informer.add_handler(note, when=changed)
    async with running():
        assert seen == [2]


async def test_own_writes_are_delivered_at_once_and_once() -> None:
    """An own write is in the store and with the handlers before the watch repeats it, and not again afterwards."""
    running = Running(lists=[a_list()], watches=[then_forever(event("ADDED", pod("b", 11)))])
    async with running():
        running.informer.written(pod("a", 12))
        assert running.seen[-1] == ("ADDED", "uid-a")
        running.informer.watched(pod("a", 12))
        assert running.seen == [("ADDED", "uid-b"), ("ADDED", "uid-a")]


async def test_silence_is_measured() -> None:
    """silent_for grows while the server says nothing and falls with its next word."""
    running = Running(lists=[a_list()], watches=[NoAnswerError("refused")])
    async with running(200):
        assert running.informer.silent_for() == 200
        running.server._watches = [then_forever(bookmark(20))]
        await running.clock.advance(60)
        silent = running.informer.silent_for()
        assert silent is not None
        assert silent < 60
