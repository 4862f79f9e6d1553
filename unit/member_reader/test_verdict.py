"""The verdict on what a read brought back."""

from __future__ import annotations

import pytest

from controller.engines.gauges import accepted_names, demanded
from controller.member_reader.envelope import parse_envelope
from controller.member_reader.verdict import Reading, Series, Verdict, judge

RUNNING, WAITING = accepted_names("vLLM")
SGLANG = demanded("SGLang")
SGLANG_ZEROS = "".join(f"{gauge.name} 0\n" for gauge in SGLANG)


def read(text: str, engine: str = "vLLM", *, ranks: int = 1, previous: Series | None = None) -> Reading:
    envelope = parse_envelope(f"{text}#end\n".encode(), names=accepted_names(engine))
    return judge(envelope, gauges=demanded(engine), ranks=ranks, previous=previous)


def vllm(running: object = 0, waiting: object = 0) -> str:
    return f"{RUNNING} {running}\n{WAITING} {waiting}\n"


def test_one_gauge_missing() -> None:
    """G1 A vLLM body with only the running gauge is Unknown, names the other, and is not complete."""
    reading = read(f"{RUNNING} 0\n")
    assert (reading.verdict, reading.complete) == (Verdict.UNKNOWN, False)
    assert reading.reason == "the engine served no vllm:num_requests_waiting"
    assert reading.in_flight is None


def test_two_of_six() -> None:
    """G2 SGLang with two of six is Unknown naming the missing ones, in their order."""
    reading = read("sglang:num_running_reqs 0\nsglang:num_queue_reqs 0\n", "SGLang")
    assert reading.verdict is Verdict.UNKNOWN
    assert reading.reason.startswith(
        "the engine served no sglang:num_prefill_bootstrap_queue_reqs, no sglang:"
    )
    assert reading.reason.endswith(", no sglang:num_decode_transfer_queue_reqs")


def test_unreadable() -> None:
    """G3 A row `unreadable` is Unknown: unreadable values."""
    reading = read(vllm(waiting="unreadable"))
    assert reading.verdict is Verdict.UNKNOWN
    assert "unreadable values" in reading.reason
    assert WAITING in reading.reason


def test_idle_and_busy() -> None:
    """G6 All zero is Idle and complete; 2 running and 1 waiting is Busy and holds 3 in flight; six zeros are Idle."""
    idle = read(vllm())
    assert (idle.verdict, idle.complete, idle.in_flight) == (Verdict.IDLE, True, 0.0)
    busy = read(vllm(2, 1))
    assert (busy.verdict, busy.complete, busy.in_flight) == (Verdict.BUSY, True, 3.0)
    assert "holds 3 in flight" in busy.reason
    assert read(SGLANG_ZEROS, "SGLang").verdict is Verdict.IDLE


def test_label_sets() -> None:
    """G7 2 and 3 running, 1 and 1 waiting are 7, busy; all zero is idle."""
    rows = '{name}{{engine="0"}} {a}\n{name}{{engine="1"}} {b}\n'
    busy = read(rows.format(name=RUNNING, a=2, b=3) + rows.format(name=WAITING, a=1, b=1))
    assert (busy.verdict, busy.in_flight) == (Verdict.BUSY, 7.0)
    idle = read(rows.format(name=RUNNING, a=0, b=0) + rows.format(name=WAITING, a=0, b=0))
    assert (idle.verdict, idle.in_flight) == (Verdict.IDLE, 0.0)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1"])
def test_no_number_of_requests(value: str) -> None:
    """G8 A figure that cannot be a number of requests is Unknown and the reason names the gauge."""
    reading = read(vllm(waiting=value))
    assert (reading.verdict, reading.complete) == (Verdict.UNKNOWN, False)
    assert WAITING in reading.reason


def test_overflow() -> None:
    """G8 Finite figures that add up to an infinite one are Unknown."""
    assert read(vllm("1e308", "1e308")).verdict is Verdict.UNKNOWN


def test_older_name() -> None:
    """The older name of a gauge stands for it; where both are there the larger counts, not the sum."""
    older = SGLANG_ZEROS.replace("prefill_bootstrap", "prefill_prealloc")
    assert read(older, "SGLang").verdict is Verdict.IDLE
    both = SGLANG_ZEROS.replace("bootstrap_queue_reqs 0", "bootstrap_queue_reqs 1") + "".join(
        f"{name} 2\n" for gauge in SGLANG for name in gauge.older_names
    )
    assert read(both, "SGLang").in_flight == 2.0


def test_ranks_missing() -> None:
    """Ranks that the command declares and that publish nothing make a reading Unknown, all zeros though it is."""
    reading = read(vllm(), ranks=2)
    assert reading.verdict is Verdict.UNKNOWN
    assert f"{RUNNING} speaks for 1 of the 2 ranks" in reading.reason


def test_other_label_sets() -> None:
    """Other label sets than the read before are Unknown once: the read after compares with these."""
    first = read(vllm())
    text = f'{RUNNING}{{engine="0"}} 0\n{WAITING} 0\n'
    second = read(text, previous=first.series)
    assert (second.verdict, second.complete) == (Verdict.UNKNOWN, False)
    assert RUNNING in second.reason
    assert read(text, previous=second.series).verdict is Verdict.IDLE


@pytest.mark.parametrize("text", [vllm(), f"{vllm()}#en", f"{vllm()}#end", "", f"#end\n{vllm()}"])
def test_cut_short(text: str) -> None:
    """A text without the end marker, whole and last, is Unknown whatever it shows."""
    reading = judge(parse_envelope(text.encode(), names=accepted_names("vLLM")), gauges=demanded("vLLM"))
    assert reading.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    "line", ["hello", "#sock 1 2", "#sock 1 2 3 x:y", "#unreadable tcp", "#other x", "x 0", ""]
)
def test_strange_rows(line: str) -> None:
    """A row that the program cannot have printed, or a socket table it could not read, is Unknown."""
    assert read(f"{vllm()}{line}\n").verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    "text",
    [
        b"\x1f\x8b\x08\x00\xff#end\n",
        b"\xff\n#end\n",
        f'{RUNNING}{{m="\udcff"}} 0\n'.encode("utf-8", "surrogateescape"),
    ],
)
def test_bytes_that_are_no_text(text: bytes) -> None:
    """Bytes that are no text are Unknown, never an error."""
    reading = judge(parse_envelope(text, names=accepted_names("vLLM")), gauges=demanded("vLLM"))
    assert reading.verdict is Verdict.UNKNOWN


def test_sockets() -> None:
    """Bytes waiting on the serving port hold; a listener's backlog, empty queues and the reader's own do not."""
    own = "#own 40000\n#sock 0100007F:1F40 0100007F:9C40 08 00000000:00000001\n"
    quiet = (
        own
        + "#sock 00000000:1F40 00000000:0000 0A 00000000:00000005\n#sock 0700000A:1F40 0100000A:9C40 01 0:0\n"
    )
    assert read(vllm() + quiet + "#unreadable tcp6\n").verdict is Verdict.IDLE
    waiting = read(vllm() + quiet + "#sock 0700000A:1F40 0200000A:9C40 01 00000010:00000001\n")
    assert (waiting.verdict, waiting.complete, waiting.in_flight) == (Verdict.BUSY, True, 0.0)
    assert waiting.reason == "17 bytes wait in 1 connections of the serving port"


def test_own_connection_over_ipv6() -> None:
    """The reader's own connection is known as such in tcp6 too, where IPv4 addresses are mapped."""
    mapped = "0000000000000000FFFF00000100007F"
    text = vllm() + f"#own 40000\n#sock {mapped}:1F40 {mapped}:9C40 08 00000000:00000001\n"
    assert read(text).verdict is Verdict.IDLE
