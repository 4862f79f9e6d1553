"""What comes out of `pods/exec`: a pure accumulator of channels, and a thin helper that drives it.

Bytes stay bytes until the end (a character may span two frames), stdout and stderr stay apart, and the exit
code is read from the Status on channel 3. A process that could not be started, or a connection that ended
without a Status, has no exit code: unknown, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from controller.cluster.client import Client, NoAnswerError

SUBPROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")

STDOUT: Final = 1
STDERR: Final = 2
STATUS: Final = 3

MAX_FRAME_BYTES: Final = 1024 * 1024
"""Longest message taken off the wire; kubelets copy in pieces of 32 KiB."""

MAX_STDERR_BYTES: Final = 16 * 1024
"""How much of stderr is kept: it is only ever quoted. What exceeds it is dropped and harms nobody."""

MAX_STATUS_BYTES: Final = 64 * 1024


class OutputTooLargeError(Exception):
    """The process wrote more than the reader was ready to hold."""


@dataclass(frozen=True, slots=True)
class ExecResult:
    """How a process in a container ended.

    `exit_code` is None when nobody knows it; `error` then says why. A non-zero exit code has its sentence
    too.
    """

    stdout: bytes
    stderr: bytes
    exit_code: int | None
    error: str


def channel_message(data: bytes) -> tuple[int, bytes]:
    """Split one message into its channel number and its bytes. Raises NoAnswerError for an empty message."""
    if not data:
        raise NoAnswerError("exec: an empty message, without the byte that names its channel")
    return data[0], data[1:]


class ExecOutput:
    """Collects the channels of one exec. `max_bytes` bounds stdout."""

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._stdout: list[bytes] = []
        self._stdout_size = 0
        self._stderr = bytearray()
        self._status = bytearray()

    def feed(self, channel: int, data: bytes) -> None:
        """Take one message. Raises OutputTooLargeError once stdout exceeds the bound."""
        if channel == STDOUT:
            self._stdout_size += len(data)
            if self._stdout_size > self._max_bytes:
                raise OutputTooLargeError(f"more than {self._max_bytes} bytes on stdout")
            self._stdout.append(data)
        elif channel == STDERR:
            self._stderr += data[: MAX_STDERR_BYTES - len(self._stderr)]
        elif channel == STATUS:
            if len(self._status) + len(data) > MAX_STATUS_BYTES:
                raise OutputTooLargeError(f"more than {MAX_STATUS_BYTES} bytes on the status channel")
            self._status += data
        # Any other channel (255 closes one in v5) carries nothing of the process.

    def result(self) -> ExecResult:
        """The end, once the connection has ended."""
        exit_code, error = _read_status(bytes(self._status))
        return ExecResult(
            stdout=b"".join(self._stdout), stderr=bytes(self._stderr), exit_code=exit_code, error=error
        )


async def run(
    client: Client,
    *,
    namespace: str,
    pod: str,
    container: str,
    argv: Sequence[str],
    timeout: float,
    max_bytes: int,
) -> ExecResult:
    """Run `argv` in a container and collect what it writes, within `timeout` seconds in all.

    Raises ApiError when the server refuses (403, 404, …), NoAnswerError when the deadline passes or the
    connection breaks, OutputTooLargeError when stdout exceeds `max_bytes`.
    """
    output = ExecOutput(max_bytes=max_bytes)
    async with client.exec_channels(
        namespace=namespace, pod=pod, container=container, argv=argv, timeout=timeout
    ) as channels:
        async for channel, data in channels:
            output.feed(channel, data)
    return output.result()


def _read_status(raw: bytes) -> tuple[int | None, str]:
    if not raw:
        return None, "the connection ended without a status"
    try:
        status = orjson.loads(raw)
    except orjson.JSONDecodeError:
        status = None
    if not isinstance(status, dict):
        return None, "the status of the process cannot be read"
    if status.get("status") == "Success":
        return 0, ""
    message = str(status.get("message") or status.get("reason") or "failed without an explanation")
    return _exit_code(status), message


def _exit_code(status: Mapping[str, Any]) -> int | None:
    """The code of a process that ran and failed; None for any other failure, such as one to start it."""
    if status.get("reason") != "NonZeroExitCode":
        return None
    causes = (status.get("details") or {}).get("causes") or ()
    codes = [str(cause.get("message")) for cause in causes if cause.get("reason") == "ExitCode"]
    return int(codes[0]) if len(codes) == 1 and codes[0].isascii() and codes[0].isdigit() else None
