"""What the hook meets: a scenario for each row of its table, and how each must end."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

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
