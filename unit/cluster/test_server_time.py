"""The API server's time as an interval."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.server_time import DRIFT, ServerTime, SystemClock, boottime

NOON = datetime(2030, 1, 1, 12, 0, 0, tzinfo=UTC)


class Machine:
    """A server whose clock is `offset` seconds (plus noon) ahead of ours, and the round trips to it."""

    def __init__(self, offset: float = 0.0) -> None:
        self.local = 1000.0
        self.offset = offset
        self.time = ServerTime(monotonic=lambda: self.local)

    @property
    def truth(self) -> datetime:
        return NOON + timedelta(seconds=self.local + self.offset)

    def ask(self, *, there: float, back: float) -> None:
        sent = self.local
        self.local += there
        stamp = format_datetime(self.truth.replace(microsecond=0), usegmt=True)
        self.local += back
        self.time.observe(stamp, sent=sent, received=self.local)


def test_unknown_before_the_first_answer() -> None:
    """Before the first answer the time is unknown, not the local one."""
    with pytest.raises(RuntimeError, match="has not answered yet"):
        ServerTime().now()


def test_one_answer_bounds_to_a_second_and_the_round_trip() -> None:
    """One answer bounds the time to one second plus the round trip, and holds the truth."""
    machine = Machine(0.25)
    machine.ask(there=0.1, back=0.2)
    now = machine.time.now()
    assert now.earliest <= machine.truth <= now.latest
    assert (now.latest - now.earliest).total_seconds() == pytest.approx(1.3)


def test_many_answers_narrow_the_interval() -> None:
    """Answers spread over a second narrow the interval to about a round trip."""
    machine = Machine(0.37)
    for _ in range(60):
        machine.ask(there=0.005, back=0.005)
        machine.local += 0.0217
    now = machine.time.now()
    assert now.earliest <= machine.truth <= now.latest
    assert (now.latest - now.earliest).total_seconds() < 0.06


@given(
    offset=st.floats(-5, 5),
    trips=st.lists(st.tuples(st.floats(0, 2), st.floats(0, 2), st.floats(0, 600)), min_size=1, max_size=20),
    drift=st.floats(-DRIFT, DRIFT),
)
def test_the_truth_is_always_inside(
    offset: float, trips: list[tuple[float, float, float]], drift: float
) -> None:
    """Whatever the offset, the round trips and a drift within bounds: the truth lies in the interval."""
    machine = Machine(offset)
    for there, back, pause in trips:
        machine.ask(there=there, back=back)
        machine.local += pause
        machine.offset += pause * drift
        now = machine.time.now()
        slack = timedelta(microseconds=5)
        assert now.earliest - slack <= machine.truth <= now.latest + slack


def test_silence_widens_the_interval_slowly() -> None:
    """An hour of silence widens the interval by the drift on each side and no more."""
    machine = Machine()
    machine.ask(there=0, back=0)
    machine.local += 3600
    now = machine.time.now()
    assert (now.latest - now.earliest).total_seconds() == pytest.approx(1 + 2 * 3600 * DRIFT)


def test_a_step_of_the_server_replaces_the_estimate() -> None:
    """A server that contradicts what was known is believed: its clock was stepped."""
    machine = Machine()
    machine.ask(there=0, back=0)
    machine.offset += 3600
    machine.ask(there=0, back=0)
    now = machine.time.now()
    assert now.earliest <= machine.truth <= now.latest


def test_a_step_of_the_local_wall_clock_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of the local wall clock by an hour moves the time by nothing."""
    machine = Machine()
    machine.ask(there=0, back=0)
    before = machine.time.now()
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    assert machine.time.now() == before


def test_a_header_that_is_no_date_is_ignored() -> None:
    """A Date header that cannot be read teaches nothing and harms nothing."""
    machine = Machine()
    machine.ask(there=0, back=0)
    before = machine.time.now()
    machine.time.observe("yesterday", sent=machine.local, received=machine.local)
    assert machine.time.now() == before


async def test_sleep_counts_time_spent_in_a_suspend(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sleep ends by CLOCK_BOOTTIME: after a suspend it does not wait again for what has passed."""
    passed = 0.0
    naps: list[float] = []

    async def nap(seconds: float) -> None:
        nonlocal passed
        naps.append(seconds)
        passed += 60.0  # the machine was suspended during this nap

    start = boottime()
    monkeypatch.setattr("controller.cluster.server_time.boottime", lambda: start + passed)
    monkeypatch.setattr(asyncio, "sleep", nap)
    await SystemClock(ServerTime()).sleep(30.0)
    assert naps == [10.0]
