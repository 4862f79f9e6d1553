"""How long to wait after a failure: longer each time, never in step with others, short again after a good while."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

INITIAL_SECONDS: Final = 0.8
MAXIMUM_SECONDS: Final = 30.0
RESET_AFTER_SECONDS: Final = 120.0


class Backoff:
    """Exponential waits of 0.8 s, doubled up to 30 s, each with up to half as much again added at random.

    The row starts anew when nothing failed for two minutes. A wait that the server asked for is a lower
    bound.
    """

    def __init__(self, *, monotonic: Callable[[], float], random: Random) -> None:
        self._monotonic = monotonic
        self._random = random
        self._seconds = INITIAL_SECONDS
        self._quiet_since = -RESET_AFTER_SECONDS

    def next(self, *, at_least: float | None = None) -> float:
        """Seconds to wait after the failure that has just happened."""
        now = self._monotonic()
        if now - self._quiet_since >= RESET_AFTER_SECONDS:
            self._seconds = INITIAL_SECONDS
        wait = max(self._seconds, at_least or 0.0) * self._random.uniform(1.0, 1.5)
        self._seconds = min(self._seconds * 2, MAXIMUM_SECONDS)
        self._quiet_since = now + wait
        return wait
