"""The seam to Kubernetes: everything above it sees this Protocol, so that a simulation can stand in for a cluster."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Response:
    """A 2xx answer: the decoded JSON body and the two headers that matter."""

    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)


class ApiError(Exception):
    """The API server said no, definitely: nothing was done (4xx), or it could not say (5xx)."""

    def __init__(self, *, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    @property
    def definite(self) -> bool:
        """True when the request certainly had no effect: only a 4xx says so."""
        return 400 <= self.status < 500

    @property
    def not_found(self) -> bool:
        """True when Kubernetes itself says that the object is absent; a proxy's or a missing API's 404 does not."""
        return self.status == 404 and self.reason == "NotFound"

    @property
    def conflict(self) -> bool:
        """True when a precondition (version, UID) did not hold."""
        return self.status == 409 and self.reason == "Conflict"

    @property
    def already_exists(self) -> bool:
        return self.status == 409 and self.reason == "AlreadyExists"


class NoAnswerError(Exception):
    """The request may or may not have had its effect: refused, reset, timed out, cut short."""


class Client(Protocol):
    """Requests, watches and exec against one API server."""

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
        """One call. Raises ApiError for any status outside 2xx, NoAnswerError without a whole answer."""
        ...

    def stream_lines(
        self, path: str, *, query: Mapping[str, str], inactivity: float
    ) -> AsyncGenerator[bytes, None]:
        """Lines of a watch until the server ends it; NoAnswerError after `inactivity` silent seconds."""
        ...

    def exec_channels(
        self, *, namespace: str, pod: str, container: str, argv: Sequence[str], timeout: float
    ) -> AbstractAsyncContextManager[AsyncIterator[tuple[int, bytes]]]:
        """Run `argv` in a container without stdin or tty; yields (channel, bytes): 1 stdout, 2 stderr, 3 Status."""
        ...
