"""The API server's time, learnt from its answers, so that every leader means the same moment by a stored
deadline.

A `Date` header has a resolution of one second and was written somewhere between the sending of the request
and the arrival of the answer. Each answer therefore bounds the offset between the server's clock and our
CLOCK_BOOTTIME to an interval; intersecting the intervals narrows it to about a round trip within a few
answers. The local wall clock is never read: somebody who steps it moves no budget.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from controller.clock import Instant

DRIFT: Final = 500e-6
"""Seconds per second by which the two clocks may part: the fastest slew that NTP daemons apply."""

SLICE: Final = 10.0
"""Longest single sleep in seconds: asyncio's clock stands still during a suspend, CLOCK_BOOTTIME does not."""


def boottime() -> float:
    """Seconds on CLOCK_BOOTTIME; on a platform without one, on the monotonic clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class ServerTime:
    """An interval estimate of the API server's clock."""

    def __init__(self, *, monotonic: Callable[[], float] = boottime) -> None:
        self._monotonic = monotonic
        self._low = 0.0
        self._high = 0.0
        self._observed_at: float | None = None

    def observe(self, date: str, *, sent: float, received: float) -> None:
        """Learn from the `Date` header of one answer; `sent` and `received` are readings of `monotonic`.

        A header that is no date is ignored. An interval that contradicts what was known (the server's clock
        was stepped, or another server answered) replaces it.
        """
        try:
            second = parsedate_to_datetime(date).timestamp()
        except ValueError:
            return
        low, high = second - received, second + 1.0 - sent
        if self._observed_at is not None:
            known_low, known_high = self._bounds(received)
            if known_low <= high and low <= known_high:
                low, high = max(low, known_low), min(high, known_high)
        self._low, self._high, self._observed_at = low, high, received

    def now(self) -> Instant:
        """The present on the API server's clock. Raises RuntimeError before its first answer."""
        moment = self._monotonic()
        low, high = self._bounds(moment)
        return Instant(
            earliest=datetime.fromtimestamp(moment + low, tz=UTC),
            latest=datetime.fromtimestamp(moment + high, tz=UTC),
        )

    def _bounds(self, moment: float) -> tuple[float, float]:
        if self._observed_at is None:
            raise RuntimeError("the API server's time is unknown: it has not answered yet")
        slack = max(0.0, moment - self._observed_at) * DRIFT
        return self._low - slack, self._high + slack


class SystemClock:
    """The Clock of a real process."""

    def __init__(self, server_time: ServerTime) -> None:
        self._server_time = server_time

    def monotonic(self) -> float:
        return boottime()

    def now(self) -> Instant:
        return self._server_time.now()

    async def sleep(self, seconds: float) -> None:
        """Sleep until CLOCK_BOOTTIME has advanced by `seconds`, at most SLICE late after a suspend."""
        until = boottime() + seconds
        while (left := until - boottime()) > 0:  # noqa: ASYNC110 - time itself is waited for
            await asyncio.sleep(min(left, SLICE))
