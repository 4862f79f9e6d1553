"""A scripted HTTP(S) server on loopback: each connection gets the next answer, the last one for good.

It speaks bytes, not HTTP, because most of what is tested here is what goes wrong below a well-formed answer.
"""

from __future__ import annotations

import asyncio
import datetime
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(slots=True)
class Script:
    """What a server says, and what it saw: `accepted` are monotonic seconds."""

    answers: Sequence[Answer]
    port: int = 0
    accepted: list[float] = field(default_factory=list)
    requests: list[bytes] = field(default_factory=list)
    open_now: int = 0
    open_most: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = self.answers[min(len(self.accepted), len(self.answers) - 1)]
        self.accepted.append(time.monotonic())
        self.open_now += 1
        self.open_most = max(self.open_most, self.open_now)
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                await answer(reader, writer)
        finally:
            self.open_now -= 1
            with suppress(OSError):
                writer.close()


@asynccontextmanager
async def serving(*answers: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[Script]:
    script = Script(answers)
    server = await asyncio.start_server(
        script.serve, "127.0.0.1", 0, ssl=tls, ssl_handshake_timeout=60 if tls else None
    )
    script.port = server.sockets[0].getsockname()[1]
    try:
        yield script
    finally:
        server.close()


@asynccontextmanager
async def silent() -> AsyncIterator[Script]:
    """Accepts, reads and never says a word: to a TLS client, a handshake that hangs."""

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(4096):
            pass

    async with _listening(listen) as script:
        yield script


@asynccontextmanager
async def blurting(data: bytes) -> AsyncIterator[Script]:
    """Answers whatever comes first with `data`, be it a TLS hello, and closes."""

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)
        writer.write(data)
        await writer.drain()

    async with _listening(listen) as script:
        yield script


@asynccontextmanager
async def refusing_clients(tls: ssl.SSLContext) -> AsyncIterator[Script]:
    """A TLS server that tells a client by an alert why it refuses it (asyncio's own hangs up in silence)."""
    script = Script([])
    listener = socket.create_server(("127.0.0.1", 0))
    script.port = listener.getsockname()[1]

    def listen() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            script.accepted.append(time.monotonic())
            connection.settimeout(5)
            with (
                tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False) as encrypted,
                suppress(OSError),
            ):
                try:
                    encrypted.do_handshake()
                except ssl.SSLError:
                    time.sleep(0.2)  # closed at once, unread bytes would turn the alert into a reset

    accepting = asyncio.create_task(asyncio.to_thread(listen))
    try:
        yield script
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        await accepting
        listener.close()


@asynccontextmanager
async def _listening(listen: Answer) -> AsyncIterator[Script]:
    script = Script([])

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        script.accepted.append(time.monotonic())
        script.open_now += 1
        script.open_most = max(script.open_most, script.open_now)
        try:
            with suppress(OSError):
                await listen(reader, writer)
        finally:
            script.open_now -= 1
            with suppress(OSError):
                writer.close()

    server = await asyncio.start_server(note, "127.0.0.1", 0)
    script.port = server.sockets[0].getsockname()[1]
    try:
        yield script
    finally:
        server.close()


def body(
    text: str | bytes, *, status: str = "200 OK", headers: str = "", length: int | None = None
) -> Answer:
    """A whole answer, or a cut one when `length` promises more than there is."""
    data = text.encode() if isinstance(text, str) else text

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (
            f"HTTP/1.1 {status}\r\nContent-Length: {len(data) if length is None else length}\r\n{headers}\r\n"
        )
        writer.write(head.encode() + data)
        await writer.drain()

    return answer


def close_delimited(text: str) -> Answer:
    """An HTTP/1.0 answer whose end is the end of the connection."""
    return raw(b"HTTP/1.0 200 OK\r\n\r\n" + text.encode())


def chunked(text: str, *, whole: bool = True) -> Answer:
    """In chunks of 7 bytes; without the last, empty one when it is not whole."""
    data = text.encode()
    pieces = [data[at : at + 7] for at in range(0, len(data), 7)]
    wire = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + (
        b"0\r\n\r\n" if whole else b""
    )
    return raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + wire)


def raw(data: bytes) -> Answer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    return answer


def late(seconds: float, then: Answer) -> Answer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(seconds)
        await then(reader, writer)

    return answer


async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Never answers; ends when the client leaves."""
    while await reader.read(4096):
        pass


def drip(text: str, *, every: float = 0.3) -> Answer:
    """One byte of an answer at a time: no single wait is long, the whole takes minutes."""
    data = f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for at in range(len(data)):
            writer.write(data[at : at + 1])
            await writer.drain()
            with suppress(TimeoutError):
                await asyncio.wait_for(reader.read(1), every)
                return  # the client has left

    return answer


def reset(text: str) -> Answer:
    """Promises more, sends `text`, then resets the connection."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(text) + 100}\r\n\r\n{text}".encode())
        await writer.drain()
        await asyncio.sleep(0.1)
        connection: socket.socket = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    return answer


def tls_context(folder: Path, *, demand_client_certificate: bool = False) -> ssl.SSLContext:
    """A server context with a fresh certificate that nobody has reason to trust."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "elsewhere.example")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=9))
        .not_valid_after(now - datetime.timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("192.0.2.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    chain = folder / "server.pem"
    chain.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    if demand_client_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(chain)
    return context
