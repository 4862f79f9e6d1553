"""The text that one read brings back, taken apart. Pure; strict where a slip could look like an idle engine."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from controller.engines.metrics_text import Sample, SampleCollector

_LISTEN: Final = "0A"
_PORT: Final = re.compile(r"[0-9]{1,5}")
_QUEUE: Final = re.compile(r"[0-9A-Fa-f]{1,8}")


@dataclass(frozen=True, slots=True)
class Socket:
    """One row of /proc/net/tcp or tcp6 whose local port is the serving port. Addresses as the kernel writes them."""

    local: str
    remote: str
    state: str
    queued_bytes: int
    """Received and not read by the engine, or written and not yet acknowledged by the other side."""


@dataclass(frozen=True, slots=True)
class Envelope:
    samples: tuple[Sample, ...] = ()
    unreadable: tuple[str, ...] = ()
    """Rows of wanted metrics, or rows of the envelope itself, that cannot be read."""
    sockets: tuple[Socket, ...] = ()
    """Without listeners and without the reader's own connection."""
    error: str = ""
    """Why there are no samples."""
    whole: bool = False
    """Whether the end marker came last."""

    @property
    def queued(self) -> tuple[Socket, ...]:
        return tuple(socket for socket in self.sockets if socket.queued_bytes)


def parse_envelope(text: bytes, *, names: Collection[str]) -> Envelope:
    """Take apart what the program printed. Never raises: what cannot be read is named in the result."""
    collector = SampleCollector(names)
    sockets: list[Socket] = []
    strange: list[str] = []
    error, own = "", ""
    *lines, rest = text.split(b"\n")
    whole = rest == b"" and lines[-1:] == [b"#end"]
    for line in lines[:-1] if whole else lines:
        if not line.startswith(b"#"):
            before = len(collector.samples) + len(collector.unreadable)
            collector.feed(line + b"\n")
            if len(collector.samples) + len(collector.unreadable) == before:
                strange.append(repr(line[:120].decode("utf-8", "replace")))
            continue
        kind, _, value = line.decode("utf-8", "replace").partition(" ")
        if kind == "#error":
            error = value or "no reason given"
        elif kind == "#own":
            own = value
        elif kind == "#sock" and (socket := _socket(value)) is not None:
            sockets.append(socket)
        elif not (kind == "#unreadable" and value == "tcp6"):  # a kernel without IPv6 has no such table
            strange.append(repr(f"{kind} {value}"[:120]))
    mine = f":{int(own):04X}" if _PORT.fullmatch(own) else None
    return Envelope(
        samples=tuple(collector.samples),
        unreadable=(*collector.unreadable, *strange),
        sockets=tuple(
            socket
            for socket in sockets
            if socket.state != _LISTEN and not (mine is not None and _is_own(socket, mine))
        ),
        error=error,
        whole=whole,
    )


def _is_own(socket: Socket, port: str) -> bool:
    """The serving side of the reader's connection: over loopback, so both ends have one address."""
    host, _, _ = socket.local.partition(":")
    return socket.remote == host + port


def _socket(row: str) -> Socket | None:
    fields = row.split()
    if len(fields) != 4:
        return None
    local, remote, state, queues = fields
    # The kernel writes up to eight digits. The text comes out of somebody else's container: a longer number is none.
    sent, _, received = queues.partition(":")
    if not (_QUEUE.fullmatch(sent) and _QUEUE.fullmatch(received)):
        return None
    return Socket(local, remote, state, int(sent, 16) + int(received, 16))
