"""A loopback HTTP server that can misbehave: each connection is handed to the test as bytes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

import orjson

from controller.cluster.credentials import Credentials
from controller.cluster.http_client import HttpClient
from controller.cluster.server_time import ServerTime


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> list[tuple[str, str]]:
        return parse_qsl(urlsplit(self.target).query, keep_blank_values=True)


Answer = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]
"""Writes whatever it likes; the connection stays open for another request unless it closes the writer."""


@dataclass
class RawServer:
    port: int = 0
    scheme: str = "http"
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    open: int = 0

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"


@asynccontextmanager
async def raw_server(answer: Answer, *, tls: ssl.SSLContext | None = None) -> AsyncGenerator[RawServer, None]:
    """Serve with `answer` while the context lasts."""
    state = RawServer(scheme="https" if tls else "http")
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        state.connections += 1
        state.open += 1
        try:
            while not writer.is_closing() and (request := await _read(reader)) is not None:
                state.requests.append(request)
                await answer(request, writer)
                await writer.drain()
            while not writer.is_closing() and await reader.read(4096):
                pass
        except ConnectionError:
            pass
        finally:
            state.open -= 1
            writer.close()
            tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    state.port = server.sockets[0].getsockname()[1]
    try:
        yield state
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await server.wait_closed()


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.rstrip("\r\n").split("\r\n")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    method, target, _ = first.split(" ")
    return Request(method, target, headers, body)


def response(
    body: object, *, status: str = "200 OK", headers: dict[str, str] | None = None, length: int | None = None
) -> bytes:
    """A whole HTTP/1.1 answer; `length` lies about the size of the body."""
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(data) if length is None else length}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode() + data


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def status_body(code: int, reason: str, message: str, **details: object) -> dict[str, object]:
    return {
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code, "reason": reason, "message": message, "details": details,
    }  # fmt: skip


def credentials(url: str, *, token: str | None = None) -> Credentials:
    """Credentials as kubernetes_asyncio would have configured them for a plain address."""
    from kubernetes_asyncio.client import Configuration

    configuration = Configuration()
    configuration.host = url
    if token is not None:
        configuration.api_key["BearerToken"] = f"Bearer {token}"
    return Credentials(configuration)


@asynccontextmanager
async def client_of(url: str, *, token: str | None = None) -> AsyncGenerator[HttpClient, None]:
    async with HttpClient(credentials(url, token=token), server_time=ServerTime()) as client:
        yield client
