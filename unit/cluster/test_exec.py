"""pods/exec: the accumulator alone, then the transport against WebSocket servers good and bad."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.client import ApiError, NoAnswerError
from controller.cluster.exec import (
    MAX_STDERR_BYTES,
    SUBPROTOCOLS,
    ExecOutput,
    ExecResult,
    OutputTooLargeError,
    run,
)
from unit.cluster.raw_server import Request, client_of, raw_server, response, status_body

SUCCESS = {"metadata": {}, "status": "Success"}


def exited(code: int) -> dict[str, Any]:
    """The Status of a process that ended by itself with `code`, as a kubelet writes it."""
    return {
        "metadata": {},
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


NOT_STARTED = {
    "metadata": {},
    "status": "Failure",
    "reason": "InternalError",
    "message": 'error executing command in container: exec: "python3": executable file not found in $PATH',
    "details": {"causes": [{"message": "exec failed"}]},
    "code": 500,
}


def collected(*messages: tuple[int, bytes], max_bytes: int = 1000) -> ExecResult:
    output = ExecOutput(max_bytes=max_bytes)
    for channel, data in messages:
        output.feed(channel, data)
    return output.result()


def test_channels_stay_apart() -> None:
    """G15 Standard error never enters the answer, however the two are interleaved."""
    found = collected((1, b"a"), (2, b"x"), (1, b"b"), (2, b"y"), (3, orjson.dumps(SUCCESS)))
    assert found == ExecResult(stdout=b"ab", stderr=b"xy", exit_code=0, error="")


@pytest.mark.parametrize(
    ("status", "code", "sentence"),
    [
        (SUCCESS, 0, ""),
        (exited(1), 1, "exit status 1"),
        (exited(3), 3, "exit status 3"),
        (NOT_STARTED, None, "executable file not found"),
        ({"status": "Failure", "reason": "InternalError"}, None, "InternalError"),
        ({"status": "Failure"}, None, "without an explanation"),
        ({"status": "Failure", "reason": "NonZeroExitCode", "message": "m", "details": None}, None, "m"),
        (
            {**exited(3), "details": {"causes": [{"reason": "ExitCode", "message": "many"}]}},
            None,
            "exit status 3",
        ),
        ([], None, "cannot be read"),
    ],
)
def test_the_status_names_the_exit_code(status: object, code: int | None, sentence: str) -> None:
    """Only an exit that was reported has a code; a process that never started has none, least of all 0."""
    found = collected((1, b"all idle"), (3, orjson.dumps(status)))
    assert found.exit_code == code
    assert sentence in found.error


@pytest.mark.parametrize("status", [b"", b"{", b"\xff"])
def test_without_a_readable_status_the_exit_is_unknown(status: bytes) -> None:
    """Output that looks complete is worth nothing without the Status that ends it."""
    found = collected((1, b"all idle"), (3, status))
    assert found.exit_code is None
    assert found.error


@given(st.lists(st.integers(1, 5), max_size=30), st.binary(max_size=60))
def test_cuts_between_frames_do_not_matter(cuts: list[int], data: bytes) -> None:
    """However stdout and the status are cut into frames, the same bytes come out."""
    status = orjson.dumps(exited(7))

    def pieces(channel: int, whole: bytes) -> list[tuple[int, bytes]]:
        found, rest = [], whole
        for cut in cuts:
            found.append((channel, rest[:cut]))
            rest = rest[cut:]
        return [*found, (channel, rest)]

    found = collected(*pieces(1, data), *pieces(3, status))
    assert (found.stdout, found.exit_code) == (data, 7)


def test_stdout_is_bounded() -> None:
    """One byte over the bound ends the read; stderr beyond its own bound is only dropped."""
    assert collected((1, b"x" * 10), max_bytes=10).stdout == b"x" * 10
    with pytest.raises(OutputTooLargeError, match="more than 10 bytes"):
        collected((1, b"x" * 6), (1, b"x" * 5), max_bytes=10)
    assert len(collected((2, b"e" * MAX_STDERR_BYTES), (2, b"more")).stderr) == MAX_STDERR_BYTES


def test_unknown_channels_are_ignored() -> None:
    """A closing signal of the v5 protocol, or a channel nobody knows, carries nothing."""
    assert collected((255, b"\x01"), (4, b"resize"), (1, b"a")).stdout == b"a"


Serve = Callable[[web.WebSocketResponse, web.Request], Awaitable[None]]


class ExecServer:
    """A WebSocket server at the exec path."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[web.Request] = []
        self.open = 0


@asynccontextmanager
async def exec_server(
    serve: Serve, *, protocols: tuple[str, ...] = SUBPROTOCOLS
) -> AsyncGenerator[ExecServer, None]:
    state = ExecServer("")

    async def handle(request: web.Request) -> web.WebSocketResponse:
        state.requests.append(request)
        socket = web.WebSocketResponse(protocols=protocols, max_msg_size=0)
        await socket.prepare(request)
        state.open += 1
        try:
            await serve(socket, request)
        finally:
            state.open -= 1
        return socket

    app = web.Application()
    app.router.add_get("/api/v1/namespaces/{namespace}/pods/{pod}/exec", handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    state.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield state
    finally:
        await runner.cleanup()


async def execute(url: str, *argv: str, timeout: float = 5.0, max_bytes: int = 1000) -> ExecResult:
    async with client_of(url, token="abc") as client:
        return await run(
            client,
            namespace="ns",
            pod="chat-server-r0-m0",
            container="main",
            argv=argv or ("true",),
            timeout=timeout,
            max_bytes=max_bytes,
        )


@pytest.mark.parametrize("protocol", SUBPROTOCOLS)
async def test_a_process_is_run_and_collected(protocol: str) -> None:
    """G15 The request names the container, asks for stdout and stderr and for no stdin or tty; both protocols work."""

    async def serve(socket: web.WebSocketResponse, request: web.Request) -> None:
        for channel in (1, 2, 3):
            await socket.send_bytes(bytes([channel]))  # as the API server does when it opens the channels
        await socket.send_bytes(b"\x01out")
        await socket.send_bytes(b"\x02err")
        await socket.send_bytes(b"\x03" + orjson.dumps(exited(3)))

    program = "import sys; print('a;b&c=d%+ é'); sys.exit(3)"
    async with exec_server(serve, protocols=(protocol,)) as server:
        found = await execute(server.url, "python3", "-c", program)
    assert (found.stdout, found.stderr, found.exit_code) == (b"out", b"err", 3)
    [request] = server.requests
    assert request.path == "/api/v1/namespaces/ns/pods/chat-server-r0-m0/exec"
    assert list(request.query.items()) == [
        ("container", "main"),
        ("stdout", "true"),
        ("stderr", "true"),
        ("command", "python3"),
        ("command", "-c"),
        ("command", program),
    ]
    assert ";" not in request.raw_path
    assert request.headers["Authorization"] == "Bearer abc"


async def test_a_forbidden_exec_repeats_the_servers_sentence() -> None:
    """A refusal of the upgrade is an ApiError with the message of its Status."""
    sentence = 'pods "p" is forbidden: User "ebb" cannot create resource "pods/exec"'

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(response(status_body(403, "Forbidden", sentence), status="403 Forbidden"))

    async with raw_server(answer) as server:
        with pytest.raises(ApiError) as caught:
            await execute(server.url)
    assert (caught.value.status, caught.value.message) == (403, sentence)


async def test_an_unknown_protocol_is_no_answer() -> None:
    """A server that chooses neither subprotocol is not read."""

    async def serve(socket: web.WebSocketResponse, request: web.Request) -> None:
        await socket.send_bytes(b"\x01out")

    async with exec_server(serve, protocols=("channel.k8s.io",)) as server:
        with pytest.raises(NoAnswerError, match="speaks none of"):
            await execute(server.url)


async def test_a_close_without_a_status_has_no_exit_code() -> None:
    """A close without a Status is a failed read, whatever the text says."""

    async def serve(socket: web.WebSocketResponse, request: web.Request) -> None:
        await socket.send_bytes(b"\x01all idle")

    async with exec_server(serve) as server:
        found = await execute(server.url)
    assert (found.stdout, found.exit_code) == (b"all idle", None)


async def _forever(socket: web.WebSocketResponse, request: web.Request) -> None:
    await socket.send_bytes(b"\x01all idle")
    await socket.receive()


async def test_the_deadline_ends_a_process_that_does_not() -> None:
    """G14 An exec that never ends, with all its output sent, is a NoAnswerError at its bound; nothing leaks."""
    async with exec_server(_forever) as server:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(NoAnswerError, match=r"no answer within 0\.2 s"):
            await execute(server.url, timeout=0.2)
        assert loop.time() - began < 1.0
        while server.open:
            await asyncio.sleep(0)


async def test_the_deadline_counts_from_the_connection() -> None:
    """A server that accepts and says nothing is left at the same bound."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        return

    async with raw_server(answer) as server:
        with pytest.raises(NoAnswerError, match=r"no answer within 0\.2 s"):
            await execute(server.url, timeout=0.2)


async def test_cancelling_leaves_nothing_behind() -> None:
    """A cancelled exec closes its connection at once and leaves no task."""
    arrived = asyncio.Event()

    async def serve(socket: web.WebSocketResponse, request: web.Request) -> None:
        arrived.set()
        await _forever(socket, request)

    async with exec_server(serve) as server, client_of(server.url) as client:
        before = len(asyncio.all_tasks())
        for _ in range(50):
            arrived.clear()
            task = asyncio.create_task(
                run(client, namespace="n", pod="p", container="c", argv=["x"], timeout=60, max_bytes=10)
            )
            await arrived.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        while server.open or len(asyncio.all_tasks()) > before:
            await asyncio.sleep(0)


async def test_endless_output_is_stopped_at_the_bound() -> None:
    """A process that prints without end is left once the bound is passed, and its connection is closed."""
    sent = 0

    async def serve(socket: web.WebSocketResponse, request: web.Request) -> None:
        nonlocal sent
        while True:
            await socket.send_bytes(b"\x01" + b"x" * 65536)
            sent += 65536

    async with exec_server(serve) as server:
        with pytest.raises(OutputTooLargeError):
            await execute(server.url, max_bytes=1 << 20)
        while server.open:
            await asyncio.sleep(0)
    assert sent < 16 << 20, "the server was not held back by a reader that had stopped"


def frame(opcode: int, payload: bytes, *, length: int | None = None) -> bytes:
    size = len(payload) if length is None else length
    if size < 126:
        head = bytes([0x80 | opcode, size])
    elif size < 65536:
        head = bytes([0x80 | opcode, 126]) + size.to_bytes(2, "big")
    else:
        head = bytes([0x80 | opcode, 127]) + size.to_bytes(8, "big")
    return head + payload


TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (frame(BINARY, b"\x01" + b"x" * 5_000_000), "exceeds limit"),
        (frame(TEXT, b"hello"), "TEXT"),
        (frame(BINARY, b""), "without the byte that names its channel"),
        (frame(7, b"what"), "opcode"),
        (frame(BINARY, b"\x01half", length=100), "without a status"),
        (frame(BINARY, b"\x01idle") + frame(CLOSE, b"\x03\xf1too big"), "without a status"),
        (frame(BINARY, b"\x01idle"), "without a status"),
    ],
    ids=["huge frame", "text", "empty", "bad opcode", "cut frame", "close 1009", "broken"],
)
async def test_a_broken_transport_is_a_failed_read(data: bytes, sentence: str) -> None:
    """Whatever breaks the transport is a failed read with a reason, never a traceback, never exit code 0."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        key = request.headers["sec-websocket-key"].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key).digest()).decode()
        writer.write(
            f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n".encode()
        )
        writer.write(data)
        await writer.drain()
        writer.close()

    async with raw_server(answer) as server:
        assert sentence in await failure_of(execute(server.url))


async def failure_of(read: Awaitable[ExecResult]) -> str:
    """What a read that failed says, whichever way it failed; a read that did not has nothing to say."""
    try:
        found = await read
    except NoAnswerError as error:
        return str(error)
    return found.error if found.exit_code is None else ""


async def test_pings_are_answered() -> None:
    """A server that pings during a long read goes on."""

    async def serve(socket: web.WebSocketResponse, request: web.Request) -> None:
        await socket.ping(b"are you there")
        await socket.send_bytes(b"\x01ok")
        await socket.send_bytes(b"\x03" + orjson.dumps(SUCCESS))

    async with exec_server(serve) as server:
        assert (await execute(server.url)).exit_code == 0
