"""The hook as a real process against a scripted server: a scenario per row of its table, all at once."""

from __future__ import annotations

import ast
import asyncio
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from controller.drain_hook.render import hook_lifecycle
from unit.engines.scripted_server import (
    Answer,
    Script,
    blurting,
    body,
    chunked,
    close_delimited,
    drip,
    hang,
    late,
    raw,
    refusing_clients,
    reset,
    serving,
    silent,
    tls_context,
)

FIXTURES: Final = Path(__file__).parent.parent / "engines" / "fixtures"
PROGRAM: Final = Path("controller/drain_hook/program.py")
GRACE: Final = 15
DEADLINE: Final = GRACE - 5.0


def vllm(running: object = 0, waiting: object = 0) -> str:
    return (
        "# HELP vllm:num_requests_running Number of requests in model execution batches.\n"
        "# TYPE vllm:num_requests_running gauge\n"
        f'vllm:num_requests_running{{engine="0",model_name="tiny"}} {running}\n'
        f'vllm:num_requests_waiting{{engine="0",model_name="tiny"}} {waiting}\n'
    )


def served(text: str) -> Answer:
    return body(text)


IDLE: Final = served(vllm())
BUSY: Final = served(vllm(running=3))

TRAPS: Final = (
    "# vllm:num_requests_running 9\n"
    'vllm:num_requests_waiting_by_reason{reason="capacity"} 6\n'
    "vllm:num_requests_running_total 4\n"
    'vllm:num_requests_running{model_name="a}b,c\\"{d"} 0 1700000000000\n'
    'vllm:num_requests_running{engine="1",} -0\n'
    "vllm:num_requests_waiting 0e3\n"
)

TOO_LARGE: Final = vllm() + "# padding\n" * 104858


@dataclass(frozen=True, slots=True)
class Outcome:
    """Seconds are from the start of the process."""

    took: float
    code: int
    said: str
    script: Script
    reads: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    claim: str
    server: Callable[[Path], AbstractAsyncContextManager[Script]]
    ends: tuple[float, float]
    said: str
    scheme: str = "http"
    reads: int | None = None
    engine: str = "vLLM"


def script(*answers: Answer) -> Callable[[Path], AbstractAsyncContextManager[Script]]:
    return lambda folder: serving(*answers)


def over_tls(*answers: Answer) -> Callable[[Path], AbstractAsyncContextManager[Script]]:
    return lambda folder: serving(*answers, tls=tls_context(folder))


@asynccontextmanager
async def closed(folder: Path) -> AsyncIterator[Script]:
    """A port where nothing listens: bound, so that nobody else gets it meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield Script([], port=bound.getsockname()[1])


AT_ONCE: Final = (5.0, 7.0)
"""Right after the settle time; how many reads there were is counted, so a slow machine may be a second late."""
AFTER_TWO: Final = (6.0, 8.0)
AT_DEADLINE: Final = (DEADLINE, DEADLINE + 2.0)

SCENARIOS: Final[Mapping[str, Scenario]] = {
    "idle": Scenario("J4 An idle engine is read twice, 1 s apart", script(IDLE), AFTER_TWO, "idle", reads=2),
    "busy-then-idle": Scenario(
        "J4 Two busy reads, then idle ones: four reads, at least the settle time and 3 s",
        script(BUSY, BUSY, IDLE),
        (8.0, 9.9),
        "idle",
        reads=4,
    ),
    "not-consecutive": Scenario(
        "Idle, busy, idle, idle: only two in a row count",
        script(IDLE, BUSY, IDLE),
        (8.0, 9.9),
        "idle",
        reads=4,
    ),
    "always-busy": Scenario(
        "J4 Always busy: ends at the deadline and says how many", script(BUSY), AT_DEADLINE, "3 in flight"
    ),
    "waiting-only": Scenario(
        "A request that waits is work too", script(served(vllm(waiting=1))), AT_DEADLINE, "1 in flight"
    ),
    "fraction": Scenario(
        "Any figure above zero is busy", script(served(vllm(1e-7))), AT_DEADLINE, "in flight"
    ),
    "refused": Scenario(
        "J4 Nothing listening: ends right after the settle time", closed, AT_ONCE, "refused", reads=0
    ),
    "unavailable": Scenario(
        "HTTP 503: ends at once", script(body("", status="503 Busy")), AT_ONCE, "HTTP status 503", reads=1
    ),
    "not-found": Scenario(
        "HTTP 404: ends at once", script(body(vllm(), status="404 Gone")), AT_ONCE, "404", reads=1
    ),
    "redirect": Scenario(
        "A redirect is not followed",
        script(body("", status="302 Found", headers="Location: /other\r\n"), IDLE),
        AT_ONCE,
        "HTTP status 302",
        reads=1,
    ),
    "tls": Scenario(
        "J4 A certificate that nobody trusts, expired, of another name: still read",
        over_tls(IDLE),
        AFTER_TWO,
        "idle",
        scheme="https",
        reads=2,
    ),
    "tls-busy": Scenario("Work is seen over TLS", over_tls(BUSY), AT_DEADLINE, "3 in flight", scheme="https"),
    "tls-to-plain": Scenario(
        "TLS handshake fails, plain HTTP there: ends at once",
        lambda folder: blurting(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        AT_ONCE,
        "TLS handshake failed",
        scheme="https",
        reads=1,
    ),
    "tls-hangs-up": Scenario(
        "TLS handshake fails, the other side hangs up: ends at once",
        lambda folder: blurting(b""),
        AT_ONCE,
        "TLS handshake failed",
        scheme="https",
        reads=1,
    ),
    "tls-mutual": Scenario(
        "TLS handshake fails, a client certificate is demanded: ends at once",
        lambda folder: refusing_clients(tls_context(folder, demand_client_certificate=True)),
        AT_ONCE,
        "TLS handshake failed",
        scheme="https",
        reads=1,
    ),
    "tls-silent": Scenario(
        "A TLS handshake that hangs is a timeout, and busy",
        lambda folder: silent(),
        AT_DEADLINE,
        "timed out",
        scheme="https",
    ),
    "never-answers": Scenario(
        "J4 An engine slower than the timeout: runs to the deadline", script(hang), AT_DEADLINE, "timed out"
    ),
    "slow-drip": Scenario(
        "A byte every 0.3 s: each read ends after 2 s, the last at most 2 s after the deadline",
        script(drip(vllm())),
        (DEADLINE, DEADLINE + 3.0),
        "timed out",
    ),
    "recovers": Scenario(
        "Two answers too late, then idle: returns after two idle reads",
        script(hang, hang, IDLE),
        (8.0, 9.9),
        "idle",
        reads=4,
    ),
    "slow-but-idle": Scenario(
        "Idle answers that take 0.8 s each are still 1 s apart",
        script(late(0.8, IDLE)),
        (7.5, 9.5),
        "idle",
        reads=2,
    ),
    "empty": Scenario("An empty body is busy", script(body("")), AT_DEADLINE, "none of the gauges"),
    "html": Scenario(
        "HTML with status 200 is busy", script(body("<html>ok</html>\n")), AT_DEADLINE, "none of the gauges"
    ),
    "statistics-off": Scenario(
        "A body with only other metrics is busy",
        script(body("process_cpu_seconds_total 3\n")),
        AT_DEADLINE,
        "none of the gauges",
    ),
    "cut-in-a-number": Scenario(
        "A body cut in the middle of a number is busy",
        script(close_delimited("vllm:num_requests_waiting 0\nvllm:num_requests_running 0")),
        AT_DEADLINE,
        "cut short",
    ),
    "shorter-than-promised": Scenario(
        "A body shorter than its Content-Length is busy",
        script(body(vllm(), length=9999)),
        AT_DEADLINE,
        "cut short",
    ),
    "chunks-cut": Scenario(
        "Chunks without the last one are busy",
        script(chunked(vllm(), whole=False)),
        AT_DEADLINE,
        "IncompleteRead",
    ),
    "reset": Scenario("A reset in the middle is busy", script(reset(vllm())), AT_DEADLINE, "reset"),
    "closed-before-answer": Scenario(
        "A connection closed without an answer is busy", script(raw(b"")), AT_DEADLINE, "failed"
    ),
    "too-large": Scenario(
        "A body over 1 MiB is busy, though its gauges are zero",
        script(body(TOO_LARGE)),
        AT_DEADLINE,
        "more than",
    ),
    "unreadable": Scenario(
        "J4 A sample that cannot be read: runs to the deadline",
        script(served(vllm(waiting="many"))),
        AT_DEADLINE,
        "unreadable",
    ),
    "nan": Scenario("NaN is busy", script(served(vllm(running="NaN"))), AT_DEADLINE, "unreadable"),
    "infinite": Scenario("+Inf is busy", script(served(vllm(running="+Inf"))), AT_DEADLINE, "unreadable"),
    "negative": Scenario(
        "A negative figure is busy, and no other outweighs it",
        script(served(vllm(running=-1, waiting=1))),
        AT_DEADLINE,
        "unreadable",
    ),
    "traps": Scenario(
        "J4 Longer names, comments, braces and quotes in labels, timestamps are ignored",
        script(served(TRAPS)),
        AFTER_TWO,
        "idle",
        reads=2,
    ),
    "chunked": Scenario("A chunked body is read", script(chunked(vllm())), AFTER_TWO, "idle", reads=2),
    "http-1.0": Scenario(
        "A body that ends with its connection is read",
        script(close_delimited(vllm())),
        AFTER_TWO,
        "idle",
        reads=2,
    ),
    "real-idle": Scenario(
        "The page of an idle vLLM 0.32 is idle",
        script(body((FIXTURES / "vllm-0.32-idle.prom").read_bytes())),
        AFTER_TWO,
        "idle",
        reads=2,
    ),
    "real-busy": Scenario(
        "The page of a busy vLLM 0.32 of two ranks counts both",
        script(body((FIXTURES / "vllm-0.32-dp2-busy.prom").read_bytes())),
        AT_DEADLINE,
        "6 in flight",
    ),
    "sglang-some": Scenario(
        "Some of the gauges there, all zero: idle",
        script(body("sglang:num_running_reqs 0\nsglang:num_queue_reqs 0\n")),
        AFTER_TWO,
        "idle",
        engine="SGLang",
        reads=2,
    ),
    "sglang-older": Scenario(
        "Work under the older name of a gauge is busy",
        script(body("sglang:num_running_reqs 0\nsglang:num_prefill_prealloc_queue_reqs 2\n")),
        AT_DEADLINE,
        "2 in flight",
        engine="SGLang",
    ),
}


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
