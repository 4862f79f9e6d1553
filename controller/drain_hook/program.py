"""Waits, before SIGTERM, until the engine holds no request: python3 -c <this text> URL GRACE GAUGE...

Runs in the engine's own container as its preStop hook. It lets a settle time pass, then reads the gauges at
URL once a second, and returns after two idle reads in a row or at the deadline, GRACE - 5 s. It exits 0
whatever happens: a hook that fails keeps nothing from being killed, it only makes a person look elsewhere.
"""

from __future__ import annotations

import time

STARTED = time.monotonic()  # before anything that takes time

import sys

if __name__ == "__main__":
    # The working directory is the image's, and a module there must not stand in for the library's.
    sys.path = [folder for folder in sys.path if folder not in ("", ".")]

import http.client
import io
import os
import re
import socket
import threading
from typing import Any, cast
from urllib.parse import urlsplit

SETTLE = 5.0  # a router may have chosen this replica in the instant before it learned of the delete
RESERVE = 5.0  # what the engine keeps of the grace period to stop in
INTERVAL = 1.0
READ_SECONDS = 2.0  # one read in all
WAIT_SECONDS = 1.0  # to connect, and for each piece of an answer
MAX_BYTES = 1048576
PIECE_BYTES = 65536
ROW_BYTES = 4096

NAME = re.compile(rb"[ \t]*([a-zA-Z_:][a-zA-Z0-9_:]*)")
LABEL = rb'[ \t]*[a-zA-Z_][a-zA-Z0-9_]*[ \t]*=[ \t]*"(?:[^"\\]|\\.)*"[ \t]*'
REST = re.compile(
    rb"(?:[ \t]*\{(?:" + LABEL + rb"(?:," + LABEL + rb")*,?)?[ \t]*\}[ \t]*|[ \t]+)"
    rb"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    rb"(?:[ \t]+-?[0-9]+)?[ \t]*"
)


class UnmeasurableError(Exception):
    """Nothing at the URL can be measured, now or a second later."""


class UnknownError(Exception):
    """What the engine holds could not be read this time."""


class Wire(io.RawIOBase):
    """A connected socket to read from, where no wait outlasts its own limit or the end of the whole read."""

    def __init__(self, connection: socket.socket, end: float) -> None:
        super().__init__()
        self.connection = connection
        self.end = end

    def limit(self) -> None:
        left = self.end - time.monotonic()
        if left <= 0:
            raise socket.timeout("no whole answer in %g s" % READ_SECONDS)
        self.connection.settimeout(min(WAIT_SECONDS, left))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self.limit()
        return self.connection.recv_into(buffer)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)


def held(url: str, gauges: frozenset[bytes]) -> float:
    """The sum of the gauges, or UnmeasurableError, or any other exception when it is unknown."""
    end = time.monotonic() + READ_SECONDS
    parts = urlsplit(url)
    address = (parts.hostname, parts.port or (443 if parts.scheme == "https" else 80))
    try:
        connection = socket.create_connection(address, timeout=WAIT_SECONDS)
    except ConnectionRefusedError:
        raise UnmeasurableError("the connection was refused") from None
    try:
        if parts.scheme == "https":
            connection = encrypted(connection, end)
        target = (parts.path or "/") + ("?" + parts.query if parts.query else "")
        request = "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % (target, parts.netloc)
        wire = Wire(connection, end)
        response = http.client.HTTPResponse(cast(Any, wire), method="GET")
        try:
            wire.limit()
            connection.sendall(request.encode("ascii"))
            response.begin()
        except OSError as error:
            if "ALERT" in (getattr(error, "reason", None) or ""):
                # In TLS 1.3 the client's handshake is over when the server refuses it for want of a
                # certificate.
                raise UnmeasurableError("the TLS handshake failed: %s" % error) from None
            raise
        if response.status != 200:
            raise UnmeasurableError("HTTP status %d" % response.status)
        return total(response, gauges)
    finally:
        connection.close()


def encrypted(connection: socket.socket, end: float) -> socket.socket:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection = context.wrap_socket(connection, do_handshake_on_connect=False)
    try:
        Wire(connection, end).limit()
        connection.do_handshake()
    except socket.timeout:
        raise
    except OSError as error:
        raise UnmeasurableError("the TLS handshake failed: %s" % error) from None
    return connection


def total(response: http.client.HTTPResponse, gauges: frozenset[bytes]) -> float:
    """The sum of the wanted samples of a body that is read in pieces and must be whole."""
    found, size, amount, rest = False, 0, 0.0, b""
    while True:
        # Not readline: over a chunked body it takes the loss of the connection for the end.
        piece = response.read(PIECE_BYTES)
        size += len(piece)
        if size > MAX_BYTES:
            raise UnknownError("more than %d bytes" % MAX_BYTES)
        if not piece:
            break
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            value = sample(line, gauges)
            if value is not None:
                found, amount = True, amount + value
    if rest or response.length:
        raise UnknownError("the body is cut short")
    if not found:
        raise UnknownError("none of the gauges is there")
    return amount


def sample(line: bytes, gauges: frozenset[bytes]) -> float | None:
    """The value of a line that belongs to one of the gauges; UnknownError when it cannot count."""
    name = NAME.match(line)
    if name is None or name.group(1) not in gauges:
        return None
    # A row made to be costly for the pattern would hold the clock of this very process.
    found = REST.fullmatch(line, name.end()) if len(line) <= ROW_BYTES else None
    value = float(found.group(1)) if found else -1.0
    if not 0 <= value < float("inf"):
        raise UnknownError("unreadable: %r" % line[:200])
    return value


def elapsed() -> float:
    return time.monotonic() - STARTED


def sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - elapsed()))


def wait(url: str, grace: float, gauges: frozenset[bytes]) -> str:
    """Return the reason to go on with the stop, when there is one."""
    deadline = grace - RESERVE
    begin, idle, last = SETTLE, 0, "nothing was read"
    while True:
        sleep_until(min(begin, deadline))
        if elapsed() >= deadline:
            return "the wait ended at its deadline: " + last
        try:
            amount = held(url, gauges)
        except UnmeasurableError as error:
            return "nothing to wait for: %s" % error
        except Exception as error:  # a read that failed proves nothing, and counts as busy
            idle, last = 0, "the last read failed: %r" % error
        else:
            idle, last = 0 if amount else idle + 1, "%g in flight" % amount
        if idle == 2:
            return "idle"
        # A slow answer's figure may be as young as its end: two that are to agree must lie an interval apart.
        begin = max(begin + INTERVAL, elapsed() + (INTERVAL if idle else 0.0))


def main() -> None:
    url, grace = sys.argv[1], float(sys.argv[2])
    # Whatever hangs (a name that does not resolve, a full pipe), the engine gets its last 3 s.
    guard = threading.Timer(max(0.0, grace - 3.0 - elapsed()), os._exit, (0,))
    guard.daemon = True
    guard.start()
    reason = wait(url, grace, frozenset(gauge.encode() for gauge in sys.argv[3:]))
    print("%.1f s: %s" % (elapsed(), reason), flush=True)


if __name__ == "__main__":
    try:
        main()
    finally:
        os._exit(0)
