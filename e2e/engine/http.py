"""As much HTTP/1.1 as an engine needs: keep-alive, bodies of a length or in chunks, answers that stream."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

MAX_HEAD = 64 * 1024
MAX_BODY = 8 * 1024 * 1024
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER on, 0 s: closing sends a reset instead of an orderly end."""


class BadRequestError(Exception):
    """The peer does not speak the part of HTTP that is spoken here."""


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    """Without the query."""
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class Reply:
    """The answer to one request, whole or in pieces."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, name: str) -> None:
        self._reader = reader
        self._writer = writer
        self._name = name

    @property
    def peer_left(self) -> bool:
        """Whether the client hung up, or was hung up on."""
        return self._reader.at_eof() or self._writer.is_closing()

    async def send(self, status: int, body: bytes = b"", *, content_type: str = "text/plain") -> None:
        """The whole answer at once."""
        self._head(status, {"content-type": content_type, "content-length": str(len(body))})
        self._writer.write(body)
        await self._writer.drain()

    async def send_json(self, value: Any, *, status: int = 200) -> None:
        await self.send(status, json.dumps(value).encode(), content_type="application/json")

    def begin(self, status: int, *, content_type: str) -> None:
        """The head of an answer that comes in chunks."""
        self._head(
            status,
            {"content-type": content_type, "transfer-encoding": "chunked", "cache-control": "no-cache"},
        )

    async def chunk(self, data: bytes) -> None:
        self._writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self._writer.drain()

    async def end(self) -> None:
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    async def send_half(self, body: bytes, *, content_type: str) -> None:
        """Announce the whole body, send half of it, and hang up."""
        self._head(200, {"content-type": content_type, "content-length": str(len(body))})
        self._writer.write(body[: len(body) // 2])
        await self._writer.drain()
        self._writer.close()

    def reset(self) -> None:
        """Cut the connection: the client sees a reset, whatever it was in the middle of."""
        reset(self._writer)

    def _head(self, status: int, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"x-engine-pod: {self._name}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())


def reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection with a reset instead of an orderly end."""
    connection: socket.socket | None = writer.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()


Handler = Callable[[Request, Reply], Awaitable[None]]


class Connections:
    """Every open connection, so that all can be cut at once."""

    def __init__(self, handle: Handler, *, name: str) -> None:
        self._handle = handle
        self._name = name
        self._open: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Requests of one connection, one after the other, until it ends or is asked to."""
        self._open[writer] = asyncio.current_task()
        try:
            while not writer.is_closing():
                request = await read_request(reader)
                if request is None:
                    break
                await self._handle(request, Reply(reader, writer, name=self._name))
                if request.headers.get("connection", "").lower() == "close":
                    break
        except BadRequestError as error:
            writer.write(f"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nx-why: {error}\r\n\r\n".encode())
        except (ConnectionError, asyncio.CancelledError):
            pass  # The client hung up or was hung up on; who was working for it has noticed by the same error.
        finally:
            del self._open[writer]
            writer.close()

    def reset_all(self) -> None:
        """Reset them all, idle ones too: a client that keeps one open must not get another answer by it."""
        for writer, task in list(self._open.items()):
            reset(writer)
            if task is not None:
                task.cancel()


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """The next request, None when the client is done; BadRequestError when it makes no sense."""
    first_byte = await reader.read(1)
    if not first_byte:
        return None
    if not first_byte.isalpha():
        # A TLS handshake, say: it has no end of head to wait for, and its sender waits for an answer.
        raise BadRequestError("this is no HTTP")
    try:
        head = first_byte + await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError as error:
        raise BadRequestError("head too long") from error
    first, *lines = head.decode("latin-1").split("\r\n")
    try:
        method, target, _version = first.split(" ")
        headers = {
            name.strip().lower(): value.strip()
            for name, value in (line.split(":", 1) for line in lines if line)
        }
    except ValueError as error:
        raise BadRequestError("head cannot be read") from error
    return Request(method, target.partition("?")[0], headers, await _body(reader, headers))


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    try:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return await _chunks(reader)
        length = int(headers.get("content-length", "0"))
        if not 0 <= length <= MAX_BODY:
            raise BadRequestError("body too long")
        return await reader.readexactly(length)
    except (ValueError, asyncio.IncompleteReadError) as error:
        raise BadRequestError("body cannot be read") from error


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while True:
        size = int((await reader.readline()).split(b";")[0], 16)
        if len(body) + size > MAX_BODY:
            raise BadRequestError("body too long")
        body += await reader.readexactly(size)
        await reader.readexactly(2)
        if size == 0:
            return bytes(body)
