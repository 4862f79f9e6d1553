"""The load against a real engine process: what the book says is what happened. Time is the subject here."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from e2e.load import Load, Tally
from unit.sample_engine.process import VLLM, EngineProcess, engine


@pytest.fixture
def process() -> Iterator[EngineProcess]:
    with engine(*VLLM) as running:
        yield running


async def until_open(load: Load, pod: str, count: int, *, seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while load.open_on(pod) < count:
            await asyncio.sleep(0.05)


async def test_streams_that_end_are_finished(process: EngineProcess) -> None:
    """Undisturbed, every stream is finished by the Pod that its chunks name; the engine's log counts the same."""
    async with Load() as load:
        load.start(process.url, clients=4, seconds_range=(0.5, 1.0), model="tiny")
        await until_open(load, "pod-0", 4)
        await load.stop(drain=True)
        tally = load.tally()
    assert tally == Tally(started=tally.started, finished=tally.started, cut=0, failed=0, open=0)
    assert tally.started >= 4
    assert {request.pod for request in load.book.requests} == {"pod-0"}
    assert load.distinct_prompts == tally.started
    process.terminate()
    process.wait()
    assert len([event for event in process.events if event["event"] == "end"]) == tally.started


async def test_an_engine_that_leaves_cuts_its_streams(process: EngineProcess) -> None:
    """Streams open at SIGTERM are cut and name their Pod; what is asked afterwards fails."""
    async with Load() as load:
        load.start(process.url, clients=5, seconds_range=(10.0, 20.0), model="tiny")
        await until_open(load, "pod-0", 5)
        assert load.open_on("pod-0", min_left=5.0) == 5
        assert load.open_on("pod-0", min_left=25.0) == 0
        assert load.open_on("another") == 0
        process.terminate()
        async with asyncio.timeout(10):
            while load.tally().failed == 0:
                await asyncio.sleep(0.05)
        await load.stop(drain=True)
    assert (load.tally().cut, load.tally().finished, load.tally().open) == (5, 0, 0)
    losses = list(load.book.losses())
    assert {request.pod for request in losses[:5]} == {"pod-0"}
    assert all(request.error for request in losses)


async def test_nobody_there_is_a_failure_and_no_tight_loop() -> None:
    """A refused connection is `failed`, and its client waits before it asks again."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    async with Load() as load:
        load.start(url, clients=2, seconds_range=(1.0, 1.0), model="tiny")
        await asyncio.sleep(2.5)
        await load.stop(drain=True)
        tally = load.tally()
    assert tally.failed == tally.started
    assert 2 <= tally.started <= 6


async def test_stopping_without_draining_loses_nothing(process: EngineProcess) -> None:
    """What the generator gives up itself is neither cut nor failed, and it ends at once."""
    async with Load() as load:
        load.start(process.url, clients=3, seconds_range=(30.0, 30.0), model="tiny")
        await until_open(load, "pod-0", 3)
        began = time.monotonic()
        await load.stop(drain=False)
        assert time.monotonic() - began < 2
    assert load.tally() == Tally(started=0, finished=0, cut=0, failed=0, open=0)


async def test_a_stream_that_ends_early_is_cut(process: EngineProcess) -> None:
    """An engine that crashes in the middle of a stream cuts it, whatever had come before."""
    async with Load() as load:
        load.start(process.url, clients=1, seconds_range=(10.0, 10.0), model="tiny")
        await until_open(load, "pod-0", 1)
        with suppress(OSError):
            # Its answer may or may not get out before the process is gone.
            await asyncio.to_thread(process.post, "/admin/faults", {"exit_code": 3})
        async with asyncio.timeout(10):
            while load.tally().cut == 0:
                await asyncio.sleep(0.05)
        await load.stop(drain=False)
    assert load.tally().cut == 1
