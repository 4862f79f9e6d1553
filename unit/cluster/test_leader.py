"""Leader election in virtual time: candidates with clocks of their own, a network that delays, loses and refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.clock import Instant, parse_time
from controller.cluster.client import ApiError, NoAnswerError, Response
from controller.cluster.leader import HANDOVER_SECONDS, TIMING, UNELECTED, Elector, LeaseLostError, Timing
from unit.cluster.virtual_clock import VirtualClock

MARGIN = TIMING.lease_seconds - TIMING.renew_seconds
LONGEST_PAUSE = 2.4
"""Seconds between two attempts at most: 2 s and a fifth of jitter."""

Raw = dict[str, Any]


def conflict() -> ApiError:
    return ApiError(status=409, reason="Conflict", message="the object has been modified")


class LeaseServer:
    """One Lease as an API server keeps it. What became of each write is noted."""

    def __init__(self, clock: VirtualClock) -> None:
        self.lease: Raw | None = None
        self.writes: list[tuple[float, str, str]] = []
        """(when, who asked, holder afterwards) of each write that was accepted."""
        self.on_write: Callable[[str, str], None] = lambda before, after: None
        self._clock = clock
        self._version = 0

    @property
    def holder(self) -> str:
        return str(((self.lease or {}).get("spec") or {}).get("holderIdentity") or "")

    @property
    def spec(self) -> Raw:
        assert self.lease is not None
        found: Raw = self.lease["spec"]
        return found

    def answer(self, method: str, body: Any, *, asker: str) -> Raw:
        if method == "GET":
            if self.lease is None:
                raise ApiError(status=404, reason="NotFound", message="no such Lease")
            return self.lease
        if method == "POST" and self.lease is not None:
            raise ApiError(status=409, reason="AlreadyExists", message="it exists")
        if method == "PUT" and self.lease is None:
            raise ApiError(status=404, reason="NotFound", message="no such Lease")
        if method == "PUT" and body["metadata"].get("resourceVersion") != str(self._version):
            raise conflict()
        before = self.holder
        self.edit(body)
        self.writes.append((self._clock.monotonic(), asker, self.holder))
        self.on_write(before, self.holder)
        assert self.lease is not None
        return self.lease

    def edit(self, body: Raw) -> None:
        """Store it, whoever wants that."""
        self._version += 1
        self.lease = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self._version)}}


class Process:
    """What one process sees of time and network; it can be stopped, and both then wait for it."""

    def __init__(self, server: LeaseServer, clock: VirtualClock, name: str, skew: timedelta) -> None:
        self.name = name
        self.delay: Callable[[], tuple[float, float]] = lambda: (0.0, 0.0)
        """Seconds that the next request needs to the server, and its answer back."""
        self.refusal: Callable[[str], Exception | None] = lambda method: None
        self.requests: list[tuple[float, str]] = []
        self._server = server
        self._clock = clock
        self._skew = skew
        self._running = asyncio.Event()
        self._running.set()
        self._under_way: set[asyncio.Task[Raw]] = set()

    def stop(self) -> None:
        self._running.clear()

    def go_on(self) -> None:
        self._running.set()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def now(self) -> Instant:
        return Instant.exact(self._clock.now().latest + self._skew)

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        await self._running.wait()

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
        """What is given up on may still arrive."""
        self.requests.append((self._clock.monotonic(), method))
        refusal = self.refusal(method)
        if refusal is not None:
            await self._running.wait()
            raise refusal
        arriving = asyncio.create_task(self._arrive(method, body))
        self._under_way.add(arriving)
        arriving.add_done_callback(self._under_way.discard)
        patience = asyncio.create_task(self._clock.sleep(timeout))
        await asyncio.wait({arriving, patience}, return_when=asyncio.FIRST_COMPLETED)
        patience.cancel()
        await self._running.wait()
        if not arriving.done():
            arriving.add_done_callback(lambda task: task.exception())
            raise NoAnswerError(f"{method} {path}: no answer within {timeout:g} s")
        return Response(status=200, body=arriving.result())

    async def _arrive(self, method: str, body: Any) -> Raw:
        there, back = self.delay()
        if there:
            await self._clock.sleep(there)
        answer = self._server.answer(method, body, asker=self.name)
        if back:
            await self._clock.sleep(back)
        return answer

    def stream_lines(
        self, path: str, *, query: Mapping[str, str], inactivity: float
    ) -> AsyncGenerator[bytes, None]:
        raise AssertionError("an elector watches nothing")

    def exec_channels(
        self, *, namespace: str, pod: str, container: str, argv: Sequence[str], timeout: float
    ) -> AbstractAsyncContextManager[AsyncIterator[tuple[int, bytes]]]:
        raise AssertionError("an elector runs nothing")


class Candidate:
    """A process that acquires and then keeps the Lease."""

    def __init__(
        self,
        server: LeaseServer,
        clock: VirtualClock,
        name: str,
        *,
        skew: timedelta = timedelta(),
        timing: Timing = TIMING,
    ) -> None:
        self.process = Process(server, clock, name, skew)
        self.elector = Elector(
            client=self.process,
            clock=self.process,
            random=Random(name),
            namespace="ebb-system",
            identity=name,
            timing=timing,
        )
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._live())

    async def _live(self) -> None:
        await self.elector.acquire()
        await self.elector.keep()

    async def kill(self) -> None:
        assert self._task is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError, LeaseLostError):
            await self._task

    @property
    def lost(self) -> str:
        """Why the process ended, "" while it lives."""
        if self._task is None or not self._task.done():
            return ""
        return str(self._task.exception())


class Place:
    """Candidates around one Lease."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.server = LeaseServer(self.clock)
        self.candidates: list[Candidate] = []

    async def candidate(self, name: str, **options: Any) -> Candidate:
        """A started candidate that has made its first attempt."""
        made = Candidate(self.server, self.clock, name, **options)
        self.candidates.append(made)
        made.start()
        await self.clock.settle()
        return made

    async def let_pass(self, seconds: float) -> None:
        """Never two at once, whenever one looks."""
        until = self.clock.monotonic() + seconds
        while self.clock.monotonic() < until:
            due = self.clock.next_due()
            moment = until if due is None else min(until, due)
            await self.clock.advance(max(0.0, moment - self.clock.monotonic()))
            leading = [c.process.name for c in self.candidates if c.elector.leads]
            assert len(leading) <= 1, f"{leading} lead at {self.clock.monotonic():.3f}"

    async def end(self) -> None:
        for candidate in self.candidates:
            candidate.process.go_on()
            await candidate.kill()


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    made = Place()
    yield made
    await made.end()


async def test_first_creates_the_lease(place: Place) -> None:
    """Where there is no Lease the first candidate makes it and leads at once; nobody's write is awaited then."""
    first = await place.candidate("first")
    assert first.elector.leads and first.elector.left() == TIMING.renew_seconds
    assert place.server.spec["holderIdentity"] == "first"
    assert (place.server.spec["leaseDurationSeconds"], place.server.spec["leaseTransitions"]) == (15, 0)
    assert not first.elector.handing_over


async def test_the_holder_renews_with_jitter(place: Place) -> None:
    """A holder renews every 2 to 2.4 s, never twice with the same pause, and never stops leading."""
    await place.candidate("first")
    acquired = parse_time(place.server.spec["acquireTime"])
    await place.let_pass(60)
    times = [when for when, _, _ in place.server.writes]
    pauses = [round(later - earlier, 6) for earlier, later in pairwise(times)]
    assert min(pauses) >= 2.0 and max(pauses) <= LONGEST_PAUSE and len(set(pauses)) == len(pauses)
    assert parse_time(place.server.spec["acquireTime"]) == acquired
    assert parse_time(place.server.spec["renewTime"]) - acquired >= timedelta(seconds=57)


@pytest.mark.parametrize("hours", [0, -30, 30])
async def test_failover_by_observation(place: Place, hours: int) -> None:
    """A killed leader's Lease passes on 15 to 20 s after its last renewal, also if the clocks are hours apart."""
    first = await place.candidate("first")
    second = await place.candidate("second", skew=timedelta(hours=hours))
    await place.let_pass(31)
    assert first.elector.leads and not second.elector.leads
    await first.kill()
    [*_, (renewed, _, _)] = place.server.writes
    await place.let_pass(20 - (place.clock.monotonic() - renewed))
    assert second.elector.leads and place.server.holder == "second"
    taken = next(when for when, asker, _ in place.server.writes if asker == "second")
    assert TIMING.lease_seconds <= taken - renewed <= TIMING.lease_seconds + 5
    assert place.server.spec["leaseTransitions"] == 1


async def test_a_standby_may_do_nothing(place: Place) -> None:
    """Before it has the Lease the fence of a candidate is shut, and says why."""
    await place.candidate("first")
    second = await place.candidate("second")
    with pytest.raises(LeaseLostError, match="ebb-system/ebb-controller is not held by this process"):
        second.elector.left()


async def test_short_trouble_is_survived(place: Place) -> None:
    """Eight seconds without an API server cost the holder nothing."""
    first = await place.candidate("first")
    await place.candidate("second")
    first.process.refusal = lambda method: NoAnswerError("connection refused")
    await place.let_pass(7)
    first.process.refusal = lambda method: None
    await place.let_pass(60)
    assert first.elector.leads and not first.lost


@pytest.mark.parametrize(
    "trouble",
    [
        NoAnswerError("connection refused"),
        ApiError(status=403, reason="Forbidden", message="cannot update resource leases"),
        ApiError(status=500, reason="InternalError", message="etcdserver: no leader"),
    ],
    ids=["away", "forbidden", "broken"],
)
async def test_a_holder_that_cannot_renew_ends(place: Place, trouble: Exception) -> None:
    """10 s after its last renewal a holder ends, saying how old the Lease is; another leads 15 s after it or later."""
    first = await place.candidate("first")
    second = await place.candidate("second")
    await place.let_pass(5)
    [*_, (renewed, _, _)] = place.server.writes
    first.process.refusal = lambda method: trouble
    await place.let_pass(renewed + TIMING.renew_seconds - 0.001 - place.clock.monotonic())
    assert first.elector.leads and not first.lost
    await place.let_pass(0.002)
    assert not first.elector.leads
    assert "last renewed 10.0 s ago, and its holder must not act after 10 s" in first.lost
    await place.let_pass(10)
    assert second.elector.leads


async def test_an_answer_that_is_lost(place: Place) -> None:
    """A renewal without an answer does not prolong the right to act, though it may have arrived; the next one does."""
    first = await place.candidate("first")
    answers = [(0.0, 60.0)]
    first.process.delay = lambda: answers.pop() if answers else (0.0, 0.0)
    await place.let_pass(LONGEST_PAUSE)
    assert len(place.server.writes) == 2, "the renewal arrived"
    assert first.elector.ends_at == TIMING.renew_seconds, "but does not count"
    await place.let_pass(8)
    assert first.elector.leads and first.elector.ends_at > TIMING.renew_seconds + 4


async def test_renewals_that_take_nine_seconds(place: Place) -> None:
    """B06-03 Every PUT is answered with 200 after 9 s: the right to act ends 10 s after the last good one began."""
    first = await place.candidate("first")
    second = await place.candidate("second")
    first.process.delay = lambda: (9.0, 0.0)
    await place.let_pass(TIMING.renew_seconds + 0.001)
    assert not first.elector.leads and first.lost
    await place.let_pass(40)
    [taken] = [when for when, asker, _ in place.server.writes if asker == "second"][:1]
    last = max(when for when, asker, _ in place.server.writes if asker == "first")
    assert taken >= last + TIMING.lease_seconds, "what arrived late was counted with"
    assert second.elector.leads


async def test_an_edit_by_hand_is_no_loss(place: Place) -> None:
    """Somebody labels the Lease: the version moves, the holder is still the holder."""
    first = await place.candidate("first")
    assert place.server.lease is not None
    metadata = {**place.server.lease["metadata"], "labels": {"seen": "yes"}}
    place.server.edit({**place.server.lease, "metadata": metadata})
    await place.let_pass(30)
    assert first.elector.leads and not first.lost
    assert place.server.lease["metadata"]["labels"] == {"seen": "yes"}


async def test_a_lease_given_to_another_by_hand(place: Place) -> None:
    """A holder that finds another name in the Lease shuts its fence at once and ends, naming it."""
    first = await place.candidate("first")
    assert place.server.lease is not None
    place.server.edit({**place.server.lease, "spec": {**place.server.spec, "holderIdentity": "hand"}})
    await place.let_pass(2 * LONGEST_PAUSE)
    assert not first.elector.leads
    assert "held by hand now" in first.lost


async def test_a_stopped_leader_does_nothing_afterwards(place: Place) -> None:
    """Stopped for longer than the lease, then continued: its fence is shut before it runs, and it asks for nothing."""
    first = await place.candidate("first")
    second = await place.candidate("second")
    await place.let_pass(5)
    first.process.stop()
    asked = len(first.process.requests)
    await place.let_pass(30)
    assert second.elector.leads
    with pytest.raises(LeaseLostError, match="must not act"):
        first.elector.left()
    first.process.go_on()
    await place.let_pass(5)
    assert first.lost and second.elector.leads
    assert first.process.requests[asked:] == []


async def test_a_stopped_leader_whose_renewal_was_answered_meanwhile(place: Place) -> None:
    """The answer to a renewal that is read 30 s late counts from when it was sent: the fence stays shut."""
    first = await place.candidate("first")
    second = await place.candidate("second")
    first.process.delay = lambda: (0.0, 0.5)
    await place.let_pass(2.0)
    while len(place.server.writes) < 2:
        await place.let_pass(0.01)
    first.process.stop()
    await place.let_pass(30)
    assert second.elector.leads
    first.process.go_on()
    await place.let_pass(1)
    assert not first.elector.leads and first.lost


async def test_a_stopped_standby_with_an_old_view(place: Place) -> None:
    """A standby that read the Lease, slept for a minute and goes on takes nothing: the version it knows is gone."""
    first = await place.candidate("first")
    second = await place.candidate("second", timing=Timing(retry_seconds=0.5))
    second.process.delay = lambda: (0.0, 0.01)
    await place.let_pass(4)
    # Its last two reads have found the same record, and the answer to the second is still on its way.
    asked = second.process.requests
    while asked[-2][0] <= place.server.writes[-1][0] or place.clock.monotonic() - asked[-1][0] > 0.008:
        await place.let_pass(0.005)
    second.process.stop()
    await place.let_pass(60)
    second.process.go_on()
    await place.let_pass(10)
    assert first.elector.leads and place.server.holder == "first"
    assert [method for _, method in asked].count("PUT") == 1, "it tried, with the old version"


async def test_release(place: Place) -> None:
    """A released Lease is taken by the next at its next attempt; the fence of the first was shut before."""
    first = await place.candidate("first")
    second = await place.candidate("second")
    await place.let_pass(4)
    await first.kill()
    await first.elector.release()
    assert not first.elector.leads and place.server.holder == ""
    await place.let_pass(LONGEST_PAUSE)
    assert second.elector.leads and place.server.spec["leaseTransitions"] == 1


async def test_an_old_lease_is_not_released(place: Place) -> None:
    """A process whose right to act has run out leaves the Lease alone; it expires by itself."""
    first = await place.candidate("first")
    await first.kill()
    await place.let_pass(TIMING.renew_seconds)
    written = len(place.server.writes)
    await first.elector.release()
    assert len(place.server.writes) == written and place.server.holder == "first"


async def test_a_release_that_fails_is_waited_out(place: Place) -> None:
    """A release without an answer raises nothing; the fence is shut all the same."""
    first = await place.candidate("first")
    await first.kill()
    first.process.refusal = lambda method: NoAnswerError("connection refused")
    await first.elector.release()
    assert not first.elector.leads and place.server.holder == "first"


async def test_a_foreign_duration_is_respected(place: Place) -> None:
    """A holder that wrote 60 s into its record has 60 s, whatever this version would have written."""
    await place.candidate("first", timing=Timing(lease_seconds=60))
    second = await place.candidate("second")
    await place.let_pass(1)
    await place.candidates[0].kill()
    await place.let_pass(58)
    assert not second.elector.leads
    await place.let_pass(7)
    assert second.elector.leads


async def test_acquisition_waits_troubles_out(place: Place) -> None:
    """A candidate that may not read the Lease yet goes on asking, paced, and leads once it may."""
    made = Candidate(place.server, place.clock, "first")
    made.process.refusal = lambda method: ApiError(
        status=403, reason="Forbidden", message="cannot get leases"
    )
    place.candidates.append(made)
    made.start()
    await place.let_pass(60)
    assert not made.elector.leads and 20 <= len(made.process.requests) <= 31
    made.process.refusal = lambda method: None
    await place.let_pass(LONGEST_PAUSE)
    assert made.elector.leads


async def test_a_creation_without_an_answer_is_ones_own(place: Place) -> None:
    """The Lease that an unanswered POST made bears our name and is taken at once, not waited out."""
    made = Candidate(place.server, place.clock, "first")
    delays = {"POST": (0.0, 60.0)}
    made.process.delay = lambda: delays.pop(made.process.requests[-1][1], (0.0, 0.0))
    place.candidates.append(made)
    made.start()
    await place.let_pass(4 + LONGEST_PAUSE)
    assert made.elector.leads and place.server.holder == "first"


async def test_two_candidates_for_an_expired_lease(place: Place) -> None:
    """Of two that find the Lease expired at the same moment one gets it and the other goes on waiting."""
    first = await place.candidate("first")
    await place.candidate("second")
    await place.candidate("third")
    await first.kill()
    await place.let_pass(40)
    leading = [c.process.name for c in place.candidates if c.elector.leads]
    assert len(leading) == 1 and place.server.holder == leading[0]
    assert place.server.spec["leaseTransitions"] == 1


async def test_what_a_predecessor_sent_may_be_on_its_way(place: Place) -> None:
    """For 15 s after a takeover (10 s for a write, and 5) the new leader counts with its predecessor's writes."""
    first = await place.candidate("first")
    second = await place.candidate("second")
    await first.kill()
    await place.let_pass(TIMING.lease_seconds + LONGEST_PAUSE)
    [taken] = [when for when, asker, _ in place.server.writes if asker == "second"][:1]
    assert second.elector.handing_over
    await place.let_pass(taken + HANDOVER_SECONDS - 0.001 - place.clock.monotonic())
    assert second.elector.handing_over
    await place.let_pass(0.002)
    assert not second.elector.handing_over


def test_impossible_timings_are_refused() -> None:
    """A renew deadline that does not lie between the retries and the lease is an error at once."""
    for wrong in ({"renew_seconds": 15.0}, {"retry_seconds": 9.0}, {"lease_seconds": 5}):
        with pytest.raises(ValueError, match="must fit"):
            Timing(**wrong)


def test_the_only_process_may_always_act() -> None:
    """Without an election nothing is fenced and nothing is waited out."""
    assert UNELECTED.leads and not UNELECTED.handing_over and UNELECTED.left() == float("inf")


seconds_of_delay = st.sampled_from([0.0, 0.0, 0.01, 0.3, 1.5, 3.9, 6.0, 14.0])
one_request = st.tuples(seconds_of_delay, seconds_of_delay, st.booleans())
a_stop = st.tuples(st.floats(0, 60), st.floats(0.1, 40), st.integers(0, 2))


@settings(max_examples=40, deadline=None)
@given(network=st.lists(one_request, min_size=1, max_size=40), stops=st.lists(a_stop, max_size=4))
def test_the_fence_is_shut_before_another_may_take_over(
    network: list[tuple[float, float, bool]], stops: list[tuple[float, float, int]]
) -> None:
    """S7 Whatever is delayed, lost or stopped: a takeover comes 5 s or more after the old holder's fence has shut."""
    asyncio.run(_race(network, stops))


async def _race(network: list[tuple[float, float, bool]], stops: list[tuple[float, float, int]]) -> None:
    place = Place()
    named = {
        name: Candidate(place.server, place.clock, name, skew=timedelta(hours=hours))
        for name, hours in (("a", 0), ("b", 9), ("c", -9))
    }
    takeovers: list[tuple[str, float]] = []

    def check() -> None:
        for name, at in takeovers:
            fence = named[name].elector.ends_at
            assert fence + MARGIN <= at, f"{name} may act until {fence:.3f}, taken over at {at:.3f}"

    def note(before: str, after: str) -> None:
        if before and after not in (before, ""):
            takeovers.append((before, place.clock.monotonic()))
            check()

    place.server.on_write = note
    number = 0

    def delay() -> tuple[float, float]:
        nonlocal number
        there, back, _ = network[number % len(network)]
        number += 1
        return there, back

    def refusal(method: str) -> Exception | None:
        return NoAnswerError("reset") if network[number % len(network)][2] and number % 3 == 0 else None

    for candidate in named.values():
        candidate.process.delay = delay
        candidate.process.refusal = refusal
        place.candidates.append(candidate)
        candidate.start()
    moments = sorted(
        [(at, "stop", which) for at, _, which in stops]
        + [(at + lasts, "go_on", which) for at, lasts, which in stops]
    )
    for at, what, which in moments:
        await place.let_pass(max(0.0, at - place.clock.monotonic()))
        getattr(place.candidates[which].process, what)()
    await place.let_pass(40)
    check()
    await place.end()


def test_stamps_are_for_people() -> None:
    """The times in a Lease are RFC 3339 with microseconds, which is all that the API server takes for a MicroTime."""
    clock = VirtualClock()
    process = Process(LeaseServer(clock), clock, "x", timedelta())
    stamp = Elector(client=process, clock=process, random=Random(1), namespace="n", identity="x")._stamp()
    assert stamp.endswith("Z") and parse_time(stamp) == datetime(2030, 1, 1, tzinfo=UTC)
