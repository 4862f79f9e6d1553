"""`vllm-router` 0.1.17: what its answers are taken for, read from answers of the real program."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from controller.routers.base import AnswerKind, RouterAnswer, UnreachableError
from controller.routers.http import MAX_BODY_BYTES, PodFetch
from controller.routers.vllm_router import IN_FLIGHT, VllmRouter, parse_workers, per_worker
from unit.builders import router_pod

FIXTURES = Path(__file__).parent / "fixtures"
BUSY = (FIXTURES / "vllm-workers-busy.txt").read_bytes()
METRICS = (FIXTURES / "vllm-metrics-busy.txt").read_bytes()
REMOVED = (FIXTURES / "vllm-metrics-target-removed-3-streams-still-open.txt").read_bytes()


async def ask(
    workers: tuple[int, bytes] | Exception, metrics: tuple[int, bytes] | Exception = (200, METRICS)
) -> RouterAnswer:
    async def fetch(method: str, url: str, *, timeout: float) -> tuple[int, bytes]:
        assert method == "GET"
        answer = workers if url.endswith(":8081/workers") else metrics
        if isinstance(answer, Exception):
            raise answer
        return answer

    return await VllmRouter().ask(router_pod(), fetch=fetch, timeout=2)


async def test_real_answer_is_read() -> None:
    """The listing and the counters of a real router become rows and figures by address."""
    answer = await ask((200, BUSY))
    assert answer.kind is AnswerKind.COMPLETE
    assert answer.rows == ("127.0.0.1:18102", "127.0.0.1:18101")
    assert answer.dispatched == {"127.0.0.1:18102": 3.0, "127.0.0.1:18101": 2.0}


async def test_streams_of_a_removed_worker_are_still_counted() -> None:
    """The in-flight figure of a worker that is listed no more stays right while its streams run."""
    assert per_worker(REMOVED, IN_FLIGHT) == {"127.0.0.1:18101": 1.0, "127.0.0.1:18102": 2.0}


def test_explicit_empty_list() -> None:
    """F4 An explicit empty worker list is a real empty set."""
    assert parse_workers(b'{"workers":[],"total":0,"stats":{}}') == ()


@pytest.mark.parametrize(
    ("workers", "says"),
    [
        ((500, b"oops"), "answered 500"),
        ((200, b"<html>welcome</html>"), "whole JSON"),
        ((200, BUSY[: len(BUSY) // 2]), "whole JSON"),
        ((200, BUSY.replace(b'"total": 2', b'"total": 3')), "says 3 workers and lists 2"),
        ((200, b'{"urls":[]}'), "without a list"),
        ((200, b"[]"), "without a list"),
        ((200, b'{"workers":[],"total":false}'), "without a list"),
        ((200, b'{"workers":[{"model_id":"m"}],"total":1}'), "without a readable url"),
        ((200, b'{"workers":[{"url":"http://10.0.0.1:x"}],"total":1}'), "without a readable url"),
        (UnreachableError("http://10.9.0.1:8081/workers: connection refused"), "refused"),
    ],
)
async def test_bad_listing_is_unknown_and_never_empty(
    workers: tuple[int, bytes] | Exception, says: str
) -> None:
    """F3 A router that answers 500, HTML, half a body, or a total that differs from its rows is unknown."""
    answer = await ask(workers)
    assert answer.kind is AnswerKind.UNKNOWN
    assert answer.rows == () and says in answer.detail


async def test_counters_that_cannot_be_read_make_the_answer_unknown() -> None:
    """Without readable counters nothing is known of dispatches, whatever the listing says."""
    html = b"<html>vllm_router_active_workers</html>\n"
    for metrics in (
        (404, b""),
        (200, b""),
        (200, html),
        (200, b'vllm_router_running_requests{worker="http://10.0.0.1:8000"} many\n'),
    ):
        assert (await ask((200, BUSY), metrics)).kind is AnswerKind.UNKNOWN


async def test_router_without_a_running_container_is_not_asked() -> None:
    """A router Pod whose container is verified not running answers for itself."""

    async def fetch(method: str, url: str, *, timeout: float) -> tuple[int, bytes]:
        raise AssertionError("asked")

    answer = await VllmRouter().ask(router_pod(running=False), fetch=fetch, timeout=2)
    assert answer.kind is AnswerKind.NOT_RUNNING


async def test_removal_names_the_worker_by_its_url() -> None:
    """A row is dropped by the URL of the worker, percent-encoded; what is answered is not looked at."""
    asked: list[tuple[str, str]] = []

    async def fetch(method: str, url: str, *, timeout: float) -> tuple[int, bytes]:
        asked.append((method, url))
        return 200, b"Worker removed"

    await VllmRouter().remove(router_pod(), "10.0.0.1:8000", fetch=fetch, timeout=2)
    assert asked == [("POST", "http://10.9.0.1:8081/remove_worker?url=http%3A%2F%2F10.0.0.1%3A8000")]


def test_rank_of_a_data_parallel_worker_is_part_of_its_pod() -> None:
    """`http://ip:port@3` is the Pod at ip:port; IPv6 keeps its brackets."""
    rows = [{"url": "http://10.0.0.1:8000@3"}, {"url": "http://[fd00::1]:8000"}]
    assert parse_workers(orjson.dumps({"workers": rows, "total": 2})) == ("10.0.0.1:8000", "[fd00::1]:8000")


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(handle: Serve) -> AsyncIterator[str]:
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/workers"


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", None),
        (b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"wor\r\n', None),
        (b"", None),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1)
            + b" " * (MAX_BODY_BYTES + 1),
            "more than",
        ),
    ],
)
async def test_answer_that_is_not_whole_is_unreachable(sent: bytes, says: str | None) -> None:
    """F3 A body that is cut short, or larger than 4 MiB, is no answer."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(sent)
        writer.close()

    async with serving(handle) as url, PodFetch() as fetch:
        with pytest.raises(UnreachableError, match=says):
            await fetch("GET", url, timeout=5)


async def test_router_that_never_answers_is_given_up() -> None:
    """A router that accepts and says nothing costs the time it was given and no more."""
    release = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.close()

    async with serving(handle) as url, PodFetch() as fetch:
        with pytest.raises(UnreachableError, match=r"did not answer within 0\.2 s"):
            await fetch("GET", url, timeout=0.2)
        release.set()


async def test_nobody_listens() -> None:
    """A refused connection is an answer that is missing, not an empty list."""
    async with serving(lambda reader, writer: asyncio.sleep(0)) as url:
        pass
    async with PodFetch() as fetch:
        with pytest.raises(UnreachableError):
            await fetch("GET", url, timeout=2)
