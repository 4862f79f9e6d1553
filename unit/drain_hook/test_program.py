"""The hook as a real process against a scripted server: a scenario per row of its table, all at once."""

from __future__ import annotations

import ast
import asyncio
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from controller.drain_hook.render import hook_lifecycle
from unit.drain_hook.scenarios import DEADLINE, GRACE, SCENARIOS, Scenario
from unit.engines.scripted_server import Script

PROGRAM: Final = Path("controller/drain_hook/program.py")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Seconds are from the start of the process."""

    took: float
    code: int
    said: str
    script: Script
    reads: tuple[float, ...]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Outcome]:
    """Every scenario, run side by side: they mostly wait."""
    poisoned = tmp_path_factory.mktemp("workdir")
    for module in ("http", "socket", "re", "ssl", "threading"):
        (poisoned / f"{module}.py").write_text("raise SystemExit('a module of the image was imported')\n")

    async def run_all() -> dict[str, Outcome]:
        running = {
            name: asyncio.create_task(run(scenario, tmp_path_factory.mktemp(name), poisoned))
            for name, scenario in SCENARIOS.items()
        }
        await asyncio.gather(*running.values())
        return {name: task.result() for name, task in running.items()}

    return asyncio.run(run_all())


async def run(scenario: Scenario, folder: Path, workdir: Path) -> Outcome:
    async with scenario.server(folder) as seen:
        return await run_hook(scenario, seen, workdir)


async def run_hook(scenario: Scenario, seen: Script, workdir: Path) -> Outcome:
    lifecycle = hook_lifecycle(
        engine=scenario.engine, url=f"{scenario.scheme}://127.0.0.1:{seen.port}/metrics", grace_seconds=GRACE
    )
    command = lifecycle["preStop"]["exec"]["command"]
    assert command[0] == "python3"
    started = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *command[1:],
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=workdir,
        env=dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "all_proxy"), "http://127.0.0.1:9"),
    )
    said, _ = await process.communicate()
    took = time.monotonic() - started
    assert process.returncode is not None
    return Outcome(
        took, process.returncode, said.decode(), seen, tuple(moment - started for moment in seen.accepted)
    )


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_row_of_the_table(name: str, outcomes: Mapping[str, Outcome]) -> None:
    """J4 Each answer ends the hook when its table says, with exit code 0 and its reason."""
    scenario, outcome = SCENARIOS[name], outcomes[name]
    assert outcome.code == 0, outcome.said
    assert scenario.said in outcome.said, scenario.claim
    earliest, latest = scenario.ends
    assert earliest <= outcome.took <= latest, f"{scenario.claim}: took {outcome.took:.2f} s; {outcome.said}"
    if scenario.reads is not None:
        assert len(outcome.reads) == scenario.reads, scenario.claim


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_times_of_reads(name: str, outcomes: Mapping[str, Outcome]) -> None:
    """No read before the settle time, none after G - 5, no two at once, and they begin 1 s apart."""
    reads = outcomes[name].reads
    assert all(at >= 5.0 for at in reads)
    # The process counts from its own start, which is later than ours by the start of the interpreter.
    assert all(at <= DEADLINE + 1.0 for at in reads)
    assert all(later - earlier >= 0.8 for earlier, later in pairwise(reads))
    assert outcomes[name].script.open_most <= 1


def test_slow_idle_answers_lie_apart(outcomes: Mapping[str, Outcome]) -> None:
    """The figure of a slow answer may be as young as its end, so the second read begins 1 s after that."""
    first, second = outcomes["slow-but-idle"].reads
    assert second - first >= 1.75


def test_the_request(outcomes: Mapping[str, Outcome]) -> None:
    """One plain GET of the URL, on a connection that is not kept."""
    head, *headers = outcomes["idle"].script.requests[0].decode().split("\r\n")
    assert head == "GET /metrics HTTP/1.1"
    assert "Connection: close" in headers


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["http://127.0.0.1:1/metrics", "soon"]])
async def test_bad_arguments_exit_zero(arguments: list[str]) -> None:
    """J4 The exit code is 0 even when the arguments cannot be read: a failed hook would only alarm."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(PROGRAM), *arguments, stderr=asyncio.subprocess.DEVNULL
    )
    assert await asyncio.wait_for(process.wait(), 10) == 0


async def test_it_never_outlives_the_last_three_seconds() -> None:
    """A hook that hangs where it cannot know, here in a pipe that nobody reads, still leaves by G - 3."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writing, True)
    started = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(PROGRAM),
        "http://127.0.0.1:1/metrics",
        "9",
        "vllm:num_requests_running",
        stdout=writing,
    )
    assert await asyncio.wait_for(process.wait(), 10) == 0
    took = time.monotonic() - started
    os.close(reading)
    os.close(writing)
    assert 5.5 <= took <= 7.5


def test_it_parses_as_python_3_8() -> None:
    """The text is Python 3.8: it runs in somebody else's image."""
    ast.parse(PROGRAM.read_text(), feature_version=(3, 8))
