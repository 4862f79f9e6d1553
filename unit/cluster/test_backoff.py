"""Waits after failures."""

from __future__ import annotations

from random import Random

from controller.cluster.backoff import Backoff


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_waits_double_up_to_half_a_minute() -> None:
    """Waits are 0.8 s doubled up to 30 s, each lengthened by up to half."""
    time = Time()
    backoff = Backoff(monotonic=time, random=Random(1))
    for expected in (0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30):
        wait = backoff.next()
        assert expected <= wait <= expected * 1.5
        time.now += wait


def test_two_healthy_minutes_start_the_row_anew() -> None:
    """After two minutes without a failure the next wait is short again; after less it is not."""
    time = Time()
    backoff = Backoff(monotonic=time, random=Random(1))
    for _ in range(6):
        time.now += backoff.next()
    time.now += 119
    assert backoff.next() >= 30
    time.now += 45 + 120
    assert backoff.next() <= 1.2


def test_the_server_may_ask_for_more() -> None:
    """A wait is never shorter than what the server asked for."""
    backoff = Backoff(monotonic=Time(), random=Random(1))
    assert backoff.next(at_least=7) >= 7
