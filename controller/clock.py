"""Two clocks, kept apart because mixing them is how budgets collapse.

*Time* is the API server's: stored in the status, compared with deletion timestamps, shared by all leaders. It is
known only within an interval, since it is read from `Date` headers of 1 s resolution. *Durations* inside one process
come from a clock that goes on during a suspend and never steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Instant:
    """A moment of the API server's time, known to lie in [earliest, latest].

    A budget is *spent* only when the earliest edge is past it; an action is *allowed* only while the latest edge is
    before it. Between the two edges nothing is done, which is the safe side of both questions.
    """

    earliest: datetime
    latest: datetime

    @classmethod
    def exact(cls, moment: datetime) -> Instant:
        return cls(earliest=moment, latest=moment)

    def is_surely_past(self, moment: datetime) -> bool:
        """True when `moment` has come whatever the error; equality counts as past."""
        return self.earliest >= moment

    def is_surely_before(self, moment: datetime) -> bool:
        return self.latest < moment

    def seconds_since(self, moment: datetime) -> float:
        """The least number of seconds that have passed since `moment`: what a settle time may count on."""
        return (self.earliest - moment).total_seconds()

    def age_of(self, moment: datetime) -> float:
        """The greatest number of seconds that may have passed since `moment`: how old evidence may be."""
        return (self.latest - moment).total_seconds()


class Clock(Protocol):
    """What everything that waits or stamps is given; tests give a virtual one."""

    def monotonic(self) -> float:
        """Seconds on CLOCK_BOOTTIME, which goes on while the machine is suspended."""
        ...

    def now(self) -> Instant:
        """The API server's time."""
        ...

    async def sleep(self, seconds: float) -> None: ...


def format_time(moment: datetime) -> str:
    """RFC 3339 in UTC with microseconds, the form the status stores."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> datetime:
    """Parse any RFC 3339 time that the API server or this controller writes."""
    return datetime.fromisoformat(text).astimezone(UTC)


def seconds(amount: float) -> timedelta:
    return timedelta(seconds=amount)
