"""Waits for a real cluster. Each says what it waits for and until when, and shows the last thing seen when it ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(what: str, probe: Callable[[], T], *, seconds: float, every: float = 0.25) -> T:
    """Ask `probe` until it gives something true; AssertionError with what was seen last when the time is up."""
    until = time.monotonic() + seconds
    while True:
        seen = probe()
        if seen:
            return seen
        if time.monotonic() >= until:
            raise AssertionError(f"{what}: not within {seconds:g} s; last seen: {seen!r}")
        time.sleep(every)
