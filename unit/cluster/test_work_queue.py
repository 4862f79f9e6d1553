"""The work queue: the race catalogue of client-go's queue, delays and backoff, in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.cluster.work_queue import BASE_SECONDS, MAXIMUM_SECONDS, ShutDownError, WorkQueue
from unit.cluster.virtual_clock import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def queue(clock: VirtualClock) -> WorkQueue[str]:
    return WorkQueue(clock=clock, random=Random(1))


async def taken(queue: WorkQueue[str]) -> list[str]:
    """Everything that can be had now, without giving it back."""
    return [await queue.get() for _ in range(len(queue))]


async def test_a_key_is_queued_once(queue: WorkQueue[str]) -> None:
    """A key added three times before a worker comes is handed out once."""
    for _ in range(3):
        queue.add("a")
    queue.add("b")
    assert len(queue) == 2
    assert await taken(queue) == ["a", "b"]


async def test_a_key_added_while_processed_comes_again_and_alone(queue: WorkQueue[str]) -> None:
    """A key added while a worker has it is handed out again after `done`, once, and not before."""
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert await taken(queue) == ["a"]
    queue.done("a")
    assert len(queue) == 0


async def test_a_key_that_is_done_can_be_added_again(queue: WorkQueue[str]) -> None:
    """A key given back and added anew is handed out anew."""
    queue.add("a")
    await queue.get()
    queue.done("a")
    queue.add("a")
    assert await queue.get() == "a"


async def test_a_key_may_be_added_again_by_its_own_worker_before_done(queue: WorkQueue[str]) -> None:
    """A worker that adds its own key and then gives it back gets it again: no wake-up is lost."""
    queue.add("a")
    key = await queue.get()
    queue.add(key)
    queue.done(key)
    assert await queue.get() == "a"


async def test_the_length_counts_what_waits(queue: WorkQueue[str]) -> None:
    """The length is what waits for a worker, without what workers have."""
    queue.add("a")
    queue.add("b")
    await queue.get()
    queue.add("a")
    assert len(queue) == 1


async def test_the_first_list_stands_behind_what_changes(queue: WorkQueue[str]) -> None:
    """Keys of the first list come after fresh ones; one that changes meanwhile moves forward."""
    for key in ("old-1", "old-2", "old-3"):
        queue.add(key, behind=True)
    queue.add("fresh")
    queue.add("old-3")
    queue.add("fresh", behind=True)
    assert await taken(queue) == ["fresh", "old-3", "old-1", "old-2"]


@pytest.mark.parametrize(("fresh", "order"), [(False, ["b", "a"]), (True, ["a", "b"])])
async def test_a_key_behind_stays_behind_while_processed(
    queue: WorkQueue[str], fresh: bool, order: list[str]
) -> None:
    """A key added behind while it is processed goes behind; a fresh addition on top moves it forward."""
    queue.add("a")
    await queue.get()
    queue.add("a", behind=True)
    if fresh:
        queue.add("a")
    queue.done("a")
    queue.add("b")
    assert await taken(queue) == order


async def test_workers_never_share_a_key_and_miss_none() -> None:
    """Many producers and workers: no key is in two hands, and every addition is followed by a pass."""
    clock = VirtualClock()
    queue: WorkQueue[int] = WorkQueue(clock=clock, random=Random(1))
    random = Random(5)
    in_hand: set[int] = set()
    passes: Counter[int] = Counter()
    dirty: set[int] = set()

    async def worker() -> None:
        while True:
            try:
                key = await queue.get()
            except ShutDownError:
                return
            assert key not in in_hand
            in_hand.add(key)
            dirty.discard(key)
            for _ in range(random.randrange(4)):
                await asyncio.sleep(0)
            passes[key] += 1
            in_hand.discard(key)
            queue.done(key)

    async def producer() -> None:
        for _ in range(300):
            key = random.randrange(10)
            dirty.add(key)
            queue.add(key)
            if random.random() < 0.3:
                await asyncio.sleep(0)

    workers = [asyncio.create_task(worker()) for _ in range(7)]
    await asyncio.gather(*(producer() for _ in range(5)))
    await queue.drained()
    queue.shut_down()
    await asyncio.gather(*workers)
    assert not dirty
    assert set(passes) == set(range(10))


async def test_a_cancelled_worker_does_not_take_a_wake_up_with_it(queue: WorkQueue[str]) -> None:
    """When the worker chosen for a key is cancelled before it runs, another one gets the key."""
    first = asyncio.create_task(queue.get())
    second = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    assert await second == "a"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_shut_down_queue_takes_nothing_and_hands_out_the_rest(queue: WorkQueue[str]) -> None:
    """After shut_down additions are ignored, what is queued is still handed out, then workers are told to go."""
    queue.add("a")
    queue.shut_down()
    queue.add("b")
    queue.add_after("c", 1)
    assert await queue.get() == "a"
    with pytest.raises(ShutDownError):
        await queue.get()


async def test_shut_down_wakes_every_waiting_worker(queue: WorkQueue[str]) -> None:
    """Workers that wait for a key are told to go."""
    workers = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.shut_down()
    results = await asyncio.gather(*workers, return_exceptions=True)
    assert [type(result) for result in results] == [ShutDownError] * 3


async def test_what_became_dirty_before_the_shut_down_is_still_passed_over(queue: WorkQueue[str]) -> None:
    """A key added while processed, before the shut-down, is handed out once more by the drain."""
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.shut_down()
    queue.add("a")
    drained = asyncio.create_task(queue.drained())
    queue.done("a")
    assert await queue.get() == "a"
    assert not drained.done()
    queue.done("a")
    await drained
    with pytest.raises(ShutDownError):
        await queue.get()


async def test_an_idle_queue_is_drained(queue: WorkQueue[str]) -> None:
    """Draining does not wait when there is nothing, waits for what is processed, and may be asked twice."""
    await queue.drained()
    queue.add("a")
    await queue.get()
    waiting = asyncio.create_task(queue.drained())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.done("a")
    await waiting
    await queue.drained()


async def test_a_delayed_key_comes_when_its_time_has_come(queue: WorkQueue[str], clock: VirtualClock) -> None:
    """A key added for later is not queued a moment too early."""
    queue.add_after("a", 10)
    await clock.advance(9.99)
    assert len(queue) == 0
    await clock.advance(0.01)
    assert await taken(queue) == ["a"]


@pytest.mark.parametrize("delays", [(10, 30), (30, 10)])
async def test_the_earliest_of_several_delays_counts(
    queue: WorkQueue[str], clock: VirtualClock, delays: tuple[float, float]
) -> None:
    """Of two delays for one key the earlier counts, whichever came first, and it comes once."""
    for delay in delays:
        queue.add_after("a", delay)
    await clock.advance(10)
    assert await taken(queue) == ["a"]
    queue.done("a")
    await clock.advance(100)
    assert len(queue) == 0


async def test_delays_are_kept_in_order(queue: WorkQueue[str], clock: VirtualClock) -> None:
    """Keys come in the order of their times, not of their additions."""
    for key, delay in (("c", 3.0), ("a", 1.0), ("d", 4.0), ("b", 2.0)):
        queue.add_after(key, delay)
    await clock.advance(5)
    assert await taken(queue) == ["a", "b", "c", "d"]


async def test_a_delay_that_has_passed_is_no_delay(queue: WorkQueue[str]) -> None:
    """No delay, or a negative one, queues at once."""
    queue.add_after("a", 0)
    queue.add_after("b", -1)
    assert await taken(queue) == ["a", "b"]


async def test_a_delayed_key_that_is_processed_comes_after_done(
    queue: WorkQueue[str], clock: VirtualClock
) -> None:
    """A delay that ends while its key is processed makes it come again after `done`."""
    queue.add("a")
    await queue.get()
    queue.add_after("a", 1)
    await clock.advance(2)
    assert len(queue) == 0
    queue.done("a")
    assert len(queue) == 1


async def test_failures_wait_longer_each_time_and_are_forgotten(
    queue: WorkQueue[str], clock: VirtualClock
) -> None:
    """The row of failures of one key doubles up to a minute, is its own, and ends with `forget`."""
    for expected in (0.5, 1, 2, 4, 8, 16, 32, 60, 60):
        wait = queue.add_rate_limited("a")
        assert expected <= wait <= expected * 1.5
        await clock.advance(wait)
        assert await taken(queue) == ["a"]
        queue.done("a")
    assert queue.add_rate_limited("b") <= BASE_SECONDS * 1.5
    queue.forget("a")
    assert queue.add_rate_limited("a") <= BASE_SECONDS * 1.5
    queue.forget("never seen")


async def test_the_server_may_ask_for_a_longer_wait(queue: WorkQueue[str]) -> None:
    """A wait is never shorter than Retry-After, and may exceed the queue's own maximum for it."""
    assert queue.add_rate_limited("a", at_least=7) >= 7
    assert queue.add_rate_limited("b", at_least=300) >= 300 > MAXIMUM_SECONDS


async def test_a_thousand_failures_do_not_overflow(queue: WorkQueue[str]) -> None:
    """A key that fails for days is still tried once a minute or so."""
    for _ in range(2000):
        wait = queue.add_rate_limited("a")
    assert wait <= MAXIMUM_SECONDS * 1.5


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["add", "after", "get", "done", "pass"])),
        max_size=40,
    )
)
def test_the_three_sets_stay_consistent(actions: list[tuple[str, str]]) -> None:
    """Any order of calls: a key is queued iff dirty and not processed, and nothing added is lost."""

    async def story() -> None:
        clock = VirtualClock()
        queue: WorkQueue[str] = WorkQueue(clock=clock, random=Random(1))
        owed: set[str] = set()
        later: dict[str, float] = {}
        in_hand: set[str] = set()
        for key, action in actions:
            if action == "add":
                queue.add(key)
                owed.add(key)
            elif action == "after":
                queue.add_after(key, 5)
                later.setdefault(key, clock.monotonic() + 5)
            elif action == "get" and len(queue):
                found = await queue.get()
                assert found in owed
                assert found not in in_hand
                owed.discard(found)
                in_hand.add(found)
            elif action == "done" and key in in_hand:
                in_hand.discard(key)
                queue.done(key)
            elif action == "pass":
                await clock.advance(2)
                owed |= {k for k, due in later.items() if due <= clock.monotonic()}
                later = {k: due for k, due in later.items() if due > clock.monotonic()}
            assert len(queue) == len(owed - in_hand)
        queue.shut_down()

    asyncio.run(story())
