"""The client against a server that behaves, refuses, and misbehaves on the wire."""

from __future__ import annotations

import asyncio
import socket
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest

from controller.cluster.client import ApiError, NoAnswerError
from controller.cluster.http_client import HttpClient
from controller.cluster.server_time import ServerTime
from unit.cluster.raw_server import (
    CHUNKED,
    LAST_CHUNK,
    Request,
    chunk,
    client_of,
    credentials,
    raw_server,
    response,
    status_body,
)

PODS = "/api/v1/namespaces/default/pods"
WATCH = {"watch": "1"}


async def lines_of(client: HttpClient, *, inactivity: float = 5.0) -> list[bytes]:
    async with aclosing(client.stream_lines(PODS, query=WATCH, inactivity=inactivity)) as lines:
        return [line async for line in lines]


async def test_a_call_says_who_and_what() -> None:
    """A call carries its query, body, content type, token and user agent, and asks for no compression."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(response({"kind": "Pod"}, status="201 Created"))

    async with raw_server(answer) as server, client_of(server.url, token="abc") as client:
        found = await client.request(
            "PATCH", PODS, query={"a": "x;y&z=1"}, body={"ä": 1}, content_type="application/merge-patch+json"
        )
    assert (found.status, found.body) == (201, {"kind": "Pod"})
    [request] = server.requests
    assert (request.method, request.path, request.query) == ("PATCH", PODS, [("a", "x;y&z=1")])
    assert ";" not in request.target
    assert request.body == '{"ä":1}'.encode()
    assert request.headers["content-type"] == "application/merge-patch+json"
    assert request.headers["authorization"] == "Bearer abc"
    assert request.headers["user-agent"].startswith("ebb-controller/")
    assert request.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("base", ["/k8s/clusters/c-abc", "/k8s/clusters/c-abc/"])
async def test_a_server_with_a_base_path_keeps_it(base: str) -> None:
    """A base path of the server stays in front of every path, with one slash."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(response({}))

    async with raw_server(answer) as server, client_of(server.url + base) as client:
        await client.request("GET", PODS)
        await lines_of(client)
        with suppress(NoAnswerError):
            async with client.exec_channels(
                namespace="default", pod="p", container="c", argv=["true"], timeout=5
            ):
                pass
    assert [request.path for request in server.requests] == [
        f"/k8s/clusters/c-abc{path}" for path in (PODS, PODS, f"{PODS}/p/exec")
    ]


async def test_a_refusal_carries_the_servers_sentence() -> None:
    """A Status body becomes an ApiError with its reason, message and Retry-After."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        body = status_body(409, "Conflict", "the UID in the precondition does not match")
        writer.write(response(body, status="409 Conflict", headers={"Retry-After": "7"}))

    async with raw_server(answer) as server, client_of(server.url) as client:
        with pytest.raises(ApiError) as caught:
            await client.request("DELETE", PODS + "/p", body={})
    error = caught.value
    assert (error.status, error.reason, error.retry_after) == (409, "Conflict", 7.0)
    assert error.message == "the UID in the precondition does not match"
    assert error.conflict
    assert error.definite


async def test_a_refusal_leaves_the_connection_usable() -> None:
    """A refused call does not cost its connection."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(response(status_body(404, "NotFound", "pods p not found"), status="404 Not Found"))

    async with raw_server(answer) as server, client_of(server.url) as client:
        for _ in range(3):
            with pytest.raises(ApiError, match="pods p not found"):
                await client.request("GET", PODS + "/p")
    assert server.connections == 1


@pytest.mark.parametrize(
    ("status", "body", "reason", "proven"),
    [
        (
            "404 Not Found",
            b'{"kind":"Status","reason":"NotFound","message":"pods p not found"}',
            "NotFound",
            True,
        ),
        ("404 Not Found", b"404 page not found\n", "Unrecognized", False),
        ("404 Not Found", b"<html>nothing here</html>", "Unrecognized", False),
        ("404 Not Found", b"", "Unrecognized", False),
        ("404 Not Found", b"[]", "Unrecognized", False),
        ("503 Service Unavailable", b"\xff\xfe", "Unrecognized", False),
    ],
)
async def test_only_kubernetes_proves_an_absence(status: str, body: bytes, reason: str, proven: bool) -> None:
    """Only a Status with reason NotFound proves an absence; a proxy's 404 page does not."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(response(body, status=status))

    async with raw_server(answer) as server, client_of(server.url) as client:
        with pytest.raises(ApiError) as caught:
            await client.request("GET", PODS + "/p")
    assert (caught.value.reason, caught.value.not_found) == (reason, proven)


async def test_a_redirect_is_not_followed() -> None:
    """A redirect is a refusal that proves nothing: no token follows it anywhere."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(response(b"", status="307 Temporary Redirect", headers={"Location": "/elsewhere"}))

    async with raw_server(answer) as server, client_of(server.url, token="abc") as client:
        with pytest.raises(ApiError) as caught:
            await client.request("DELETE", PODS + "/p")
    assert not caught.value.definite
    assert len(server.requests) == 1


async def _close(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def _reset(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    writer.close()


async def _half_headers(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-")
    await writer.drain()
    writer.close()


async def _short_body(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(response(b'{"kind":"Pod"', length=500))
    await writer.drain()
    writer.close()


async def _unended_chunks(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(CHUNKED + chunk(b'{"kind":"Pod"}'))
    await writer.drain()
    writer.close()


async def _no_json(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(response(b'{"kind":'))


async def _silence(request: Request, writer: asyncio.StreamWriter) -> None:
    return


async def _stalled_body(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(response(b'{"kind":', length=500))


MISDEEDS = [_close, _reset, _half_headers, _short_body, _unended_chunks, _no_json, _silence, _stalled_body]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("misdeed", MISDEEDS, ids=lambda misdeed: misdeed.__name__.strip("_"))
async def test_less_than_a_whole_answer_is_no_answer(misdeed: object, method: str) -> None:
    """Whatever keeps an answer from being whole is a NoAnswerError that names the call; nothing leaks."""
    async with raw_server(misdeed) as server:  # type: ignore[arg-type]
        async with client_of(server.url) as client:
            with pytest.raises(NoAnswerError, match=f"{method} {PODS}"):
                await client.request(method, PODS, timeout=0.3)
        while server.open:
            await asyncio.sleep(0)


async def test_a_refused_connection_is_no_answer() -> None:
    """Nobody listening is a NoAnswerError with the reason."""
    async with raw_server(_close) as server:
        url = server.url
    async with client_of(url) as client:
        with pytest.raises(NoAnswerError, match="Connect call failed"):
            await client.request("GET", PODS)


@pytest.mark.parametrize(
    ("method", "times"), [("GET", 2), ("PUT", 1), ("DELETE", 1), ("POST", 1), ("PATCH", 1)]
)
async def test_a_write_is_sent_once(method: str, times: int) -> None:
    """A write on a kept connection that breaks is not sent again; a read may be."""
    answered = False

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        nonlocal answered
        if not answered:
            answered = True
            writer.write(response({}))
        else:
            writer.close()

    async with raw_server(answer) as server, client_of(server.url) as client:
        await client.request("GET", PODS)
        with pytest.raises(NoAnswerError):
            await client.request(method, PODS)
    assert len(server.requests) == 1 + times


async def test_a_rejected_token_is_replaced_once() -> None:
    """After a 401 the call is made once more, and only with another token."""
    known = credentials("http://unused", token="old")

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        # The token is rotated while the first call is on its way.
        known._configuration.api_key["BearerToken"] = "Bearer new\n"
        if request.headers["authorization"] == "Bearer new":
            writer.write(response({"items": []}))
        else:
            writer.write(
                response(status_body(401, "Unauthorized", "Unauthorized"), status="401 Unauthorized")
            )

    async with raw_server(answer) as server:
        known.server = server.url
        async with HttpClient(known, server_time=ServerTime()) as client:
            assert (await client.request("GET", PODS)).body == {"items": []}
            assert [request.headers["authorization"] for request in server.requests] == [
                "Bearer old",
                "Bearer new",
            ]


async def test_a_token_that_stays_rejected_is_not_tried_again() -> None:
    """A 401 without another token is told to the caller after one call."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(response(status_body(401, "Unauthorized", "Unauthorized"), status="401 Unauthorized"))

    async with raw_server(answer) as server, client_of(server.url, token="old") as client:
        with pytest.raises(ApiError, match="401 Unauthorized"):
            await client.request("GET", PODS)
    assert len(server.requests) == 1


async def test_the_servers_time_is_learnt_from_every_answer() -> None:
    """The Date of any answer, a refusal too, teaches the server's time."""
    moment = datetime(2035, 5, 5, 5, 5, 5, tzinfo=UTC)

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        headers = {"Date": format_datetime(moment, usegmt=True)}
        writer.write(response(status_body(403, "Forbidden", "no"), status="403 Forbidden", headers=headers))

    server_time = ServerTime()
    async with (
        raw_server(answer) as server,
        HttpClient(credentials(server.url), server_time=server_time) as client,
    ):
        with pytest.raises(ApiError):
            await client.request("GET", PODS)
    assert abs((server_time.now().earliest - moment).total_seconds()) < 5


async def test_every_answer_is_told_to_the_observer() -> None:
    """The observer hears verb and status of each call, and 0 for one without an answer."""
    seen: list[tuple[str, int]] = []

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.method == "PUT":
            writer.close()
        elif request.method == "POST":
            writer.write(response(status_body(422, "Invalid", "no"), status="422 Unprocessable Entity"))
        else:
            writer.write(response({}))

    async with (
        raw_server(answer) as server,
        HttpClient(
            credentials(server.url),
            server_time=ServerTime(),
            observe=lambda verb, status, seconds: seen.append((verb, status)),
        ) as client,
    ):
        await client.request("GET", PODS)
        with pytest.raises(ApiError):
            await client.request("POST", PODS, body={})
        with pytest.raises(NoAnswerError):
            await client.request("PUT", PODS, body={})
        await lines_of(client)
    assert seen == [("GET", 200), ("POST", 422), ("PUT", 0), ("WATCH", 200)]


async def test_a_cancelled_call_ends_at_once_and_leaks_nothing() -> None:
    """Cancelling a call ends it and closes its connection."""
    arrived = asyncio.Event()

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        arrived.set()

    async with raw_server(answer) as server, client_of(server.url) as client:
        before = asyncio.all_tasks()
        call = asyncio.create_task(client.request("GET", PODS, timeout=60))
        await arrived.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        while server.open:
            await asyncio.sleep(0)
        assert {task for task in asyncio.all_tasks() if not task.done()} <= before


async def test_lines_survive_any_cut() -> None:
    """A watch cut at every byte yields the same lines: a character or an event may span chunks."""
    events = ['{"a":"é€😀"}', '{"b":1}']

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        data = ("\n".join(events) + "\n").encode()
        writer.write(CHUNKED + b"".join(chunk(data[i : i + 1]) for i in range(len(data))) + LAST_CHUNK)

    async with raw_server(answer) as server, client_of(server.url) as client:
        assert await lines_of(client) == [event.encode() for event in events]


async def test_a_line_may_be_large() -> None:
    """An event of two megabytes is one line."""
    event = b'{"x":"' + b"a" * 2_000_000 + b'"}'

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED + chunk(event + b"\n" + event + b"\n") + LAST_CHUNK)

    async with raw_server(answer) as server, client_of(server.url) as client:
        assert await lines_of(client) == [event, event]


async def test_a_watch_answered_with_a_plain_body_yields_it() -> None:
    """A body without a newline at its end is delivered: an error may come as plain JSON with status 200."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(response(status_body(410, "Expired", "too old")))

    async with raw_server(answer) as server, client_of(server.url) as client:
        [line] = await lines_of(client)
    assert b"too old" in line


async def test_a_watch_that_breaks_says_so_after_what_it_delivered() -> None:
    """A connection lost in the middle of a watch is a NoAnswerError, after the lines that were whole."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED + chunk(b'{"n":1}\n{"n":'))
        await writer.drain()
        writer.close()

    got: list[bytes] = []

    async def collect(client: HttpClient) -> None:
        async for line in client.stream_lines(PODS, query=WATCH, inactivity=5):
            got.append(line)

    async with raw_server(answer) as server, client_of(server.url) as client:
        with pytest.raises(NoAnswerError, match="WATCH"):
            await collect(client)
    assert got == [b'{"n":1}']


@pytest.mark.parametrize(
    "begun", [b"", CHUNKED, CHUNKED + chunk(b'{"n":1}\n')], ids=["nothing", "headers", "a line"]
)
async def test_a_silent_watch_is_given_up(begun: bytes) -> None:
    """A watch that says nothing for the inactivity limit is a NoAnswerError, however far it came."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(begun)

    async with raw_server(answer) as server, client_of(server.url) as client:
        with pytest.raises(NoAnswerError, match=r"no answer within 0\.1 s"):
            await lines_of(client, inactivity=0.1)


async def test_a_refused_watch_is_an_api_error() -> None:
    """A watch whose status is no success raises it, and never yields its body as an event."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(response(status_body(410, "Expired", "too old resource version"), status="410 Gone"))

    async with raw_server(answer) as server, client_of(server.url) as client:
        with pytest.raises(ApiError, match="too old resource version"):
            await lines_of(client)


async def test_watches_do_not_stand_in_the_way_of_calls() -> None:
    """A hundred and fifty open watches leave room for calls."""
    watching = 0
    all_watching = asyncio.Event()

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        nonlocal watching
        if ("watch", "1") not in request.query:
            writer.write(response({"ok": True}))
            return
        writer.write(CHUNKED)
        watching += 1
        if watching == 150:
            all_watching.set()

    async with raw_server(answer) as server, client_of(server.url) as client:
        watches = [asyncio.create_task(lines_of(client, inactivity=60)) for _ in range(150)]
        async with asyncio.timeout(10):
            await all_watching.wait()
        assert (await client.request("PUT", PODS, body={}, timeout=5)).body == {"ok": True}
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)


async def test_broken_watches_leak_nothing() -> None:
    """After five hundred broken watches no connection and no task is left."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED + chunk(b"{}\n"))
        await writer.drain()
        writer.close()

    async with raw_server(answer) as server, client_of(server.url) as client:
        before = len(asyncio.all_tasks())
        for _ in range(500):
            with pytest.raises(NoAnswerError):
                await lines_of(client)
        while server.open:
            await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == before
    assert server.connections == 500
