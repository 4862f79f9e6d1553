"""What became of every request. The engines name their Pod in what they stream, so the book knows who served it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum


class End(StrEnum):
    FINISHED = "finished"
    CUT = "cut"
    """It had begun to stream and did not come to its end mark."""
    FAILED = "failed"
    """It never began: refused, an error status, no first chunk."""
    STOPPED = "stopped"
    """The generator itself gave it up."""


@dataclass(slots=True)
class Request:
    """One stream. Times are monotonic seconds; `expected` is how long the engine was asked to stream."""

    number: int
    prompt: str
    expected: float
    started: float
    pod: str = ""
    first_chunk: float | None = None
    ended: float | None = None
    end: End | None = None
    error: str = ""

    def seconds_left(self, now: float) -> float:
        """How long it will still stream if the engine keeps its pace."""
        return self.expected - (now - (self.first_chunk or self.started))


@dataclass(frozen=True, slots=True)
class Tally:
    """`started` counts what was open at the beginning of the span or began in it."""

    started: int
    finished: int
    cut: int
    failed: int
    open: int


@dataclass(slots=True)
class Book:
    """Every request of one load, in the order in which they began."""

    requests: list[Request] = field(default_factory=list)

    def open(self, *, prompt: str, expected: float, now: float) -> Request:
        request = Request(number=len(self.requests), prompt=prompt, expected=expected, started=now)
        self.requests.append(request)
        return request

    def close(self, request: Request, *, end: End, now: float, error: str = "") -> None:
        request.end, request.ended, request.error = end, now, error

    def open_on(self, pod: str, *, now: float, min_left: float = 0.0) -> int:
        """Streams that a Pod serves now and that have at least `min_left` seconds to go."""
        return sum(
            1
            for request in self.requests
            if request.pod == pod and request.end is None and request.seconds_left(now) >= min_left
        )

    def tally(self, *, since: float = float("-inf"), until: float = float("inf")) -> Tally:
        """Requests that were open at some moment of the span. What the generator gave up itself counts nowhere."""
        ends = [
            request.end
            for request in self.requests
            if request.started <= until
            and (request.ended is None or request.ended >= since)
            and request.end is not End.STOPPED
        ]
        return Tally(
            started=len(ends),
            finished=ends.count(End.FINISHED),
            cut=ends.count(End.CUT),
            failed=ends.count(End.FAILED),
            open=ends.count(None),
        )

    def losses(self) -> Iterator[Request]:
        """The requests that a person would complain about."""
        return (request for request in self.requests if request.end in (End.CUT, End.FAILED))

    @property
    def distinct_prompts(self) -> int:
        return len({request.prompt for request in self.requests})
