"""The member program as a real process against a scripted server, from its argv to the verdict."""

from __future__ import annotations

import ast
import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import pytest

from controller.engines.gauges import demanded
from controller.member_reader.envelope import Envelope, parse_envelope
from controller.member_reader.render import program_text, read_argv
from controller.member_reader.verdict import Reading, Verdict, judge
from unit.engines.scripted_server import (
    Answer,
    Script,
    body,
    chunked,
    close_delimited,
    drip,
    hang,
    raw,
    reset,
    serving,
    tls_context,
)

FIXTURES: Final = Path(__file__).parent.parent / "engines" / "fixtures"
ENGINES: Final = ("vLLM", "SGLang")


async def run_program(url: str, engine: str, *, cwd: Path | None = None) -> tuple[bytes, float]:
    """Standard output, and the seconds it took. Standard error must stay empty."""
    argv = read_argv(url=url, gauges=demanded(engine))
    assert argv[:2] == ["python3", "-c"]
    started = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *argv[1:],
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
        env={"http_proxy": "http://127.0.0.1:9", "LC_ALL": "C", "PYTHONIOENCODING": "ascii:strict"},
    )
    said, complaints = await asyncio.wait_for(process.communicate(), 10)
    assert (process.returncode, complaints) == (0, b"")
    return said, time.monotonic() - started


def parse(said: bytes, engine: str) -> Envelope:
    return parse_envelope(said, names=[name for gauge in demanded(engine) for name in gauge.names])


async def read(answer: Answer, engine: str = "vLLM") -> Reading:
    async with serving(answer) as script:
        said, _ = await run_program(f"http://127.0.0.1:{script.port}/metrics", engine)
    return judge(parse(said, engine), gauges=demanded(engine))


def page(engine: str, first: Sequence[str]) -> str:
    """A page on which the first gauge has these rows, one rank each, and every other gauge is 0."""
    gauge, *others = demanded(engine)
    rows = [f'{gauge.name}{{rank="{rank}"}} {row}' for rank, row in enumerate(first)]
    return "\n".join(["# TYPE x gauge", "x 7", *rows, *(f"{other.name} 0" for other in others), ""])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        (["0"], Verdict.IDLE),
        (["2"], Verdict.BUSY),
        (["0.0000001"], Verdict.BUSY),
        (["1", "2"], Verdict.BUSY),
        (["unreadable"], Verdict.UNKNOWN),
        (["unreadable", "0"], Verdict.UNKNOWN),
        (["0", "unreadable"], Verdict.UNKNOWN),
        (["not-a-number"], Verdict.UNKNOWN),
        ([""], Verdict.UNKNOWN),
        (["NaN"], Verdict.UNKNOWN),
        (["+Inf"], Verdict.UNKNOWN),
        (["-Inf"], Verdict.UNKNOWN),
        (["-1"], Verdict.UNKNOWN),
        (["1", "-1"], Verdict.UNKNOWN),
        (["-1", "1"], Verdict.UNKNOWN),
        (["1e308", "1e308"], Verdict.UNKNOWN),
        ([], Verdict.UNKNOWN),
    ],
)
async def test_values(engine: str, rows: list[str], verdict: Verdict) -> None:
    """G8 The real program on both engines: what is no finite, non-negative number is Unknown, never Idle."""
    reading = await read(body(page(engine, rows)), engine)
    assert reading.verdict is verdict
    assert reading.complete is (verdict is not Verdict.UNKNOWN)


async def test_real_pages() -> None:
    """The pages of a real vLLM 0.32: idle is Idle, two ranks of three are six in flight; nothing else is carried."""
    async with serving(body((FIXTURES / "vllm-0.32-idle.prom").read_bytes())) as script:
        said, _ = await run_program(f"http://127.0.0.1:{script.port}/metrics", "vLLM")
    assert judge(parse(said, "vLLM"), gauges=demanded("vLLM")).verdict is Verdict.IDLE
    samples = [line for line in said.decode().splitlines() if not line.startswith("#")]
    assert samples == [
        'vllm:num_requests_running{engine="0",model_name="tiny"} 0.0',
        'vllm:num_requests_waiting{engine="0",model_name="tiny"} 0.0',
    ]
    busy = await read(body((FIXTURES / "vllm-0.32-dp2-busy.prom").read_bytes()))
    assert (busy.verdict, busy.in_flight, busy.reason) == (Verdict.BUSY, 6.0, "the engine holds 6 in flight")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (body("", status="404 Not Found"), "HTTP status 404"),
        (body("", status="302 Found", headers="Location: http://127.0.0.1:9/\r\n"), "HTTP status 302"),
        (body("<html>\n"), "the engine served no vllm:num_requests_running"),
        (body(""), "the engine served no vllm:num_requests_running"),
        (body(page("vLLM", ["0"]), length=9999), "cut short"),
        (close_delimited(page("vLLM", ["0"])[:-1]), "cut short"),
        (chunked(page("vLLM", ["0"]), whole=False), "IncompleteRead"),
        (reset(page("vLLM", ["0"])), "reset"),
        (raw(b""), "closed"),
        (body(page("vLLM", ["0"]) + "# padding\n" * 104858), "more than 1048576 bytes"),
        (hang, "2 s"),
        (drip(page("vLLM", ["0"])), "2 s"),
    ],
)
async def test_no_page(answer: Answer, says: str) -> None:
    """A page that cannot be had whole and in time is Unknown, and the reason says what was wrong."""
    reading = await read(answer)
    assert reading.verdict is Verdict.UNKNOWN
    assert not reading.complete
    assert says in reading.reason


@pytest.mark.parametrize("answer", [hang, drip(page("vLLM", ["0"]))])
async def test_two_seconds_in_all(answer: Answer) -> None:
    """G12 However slowly the engine answers, the program leaves the container after 2 s and its own start."""
    async with serving(answer) as script:
        _, took = await run_program(f"http://127.0.0.1:{script.port}/metrics", "vLLM")
    assert 1.9 <= took < 4.0


async def test_refused() -> None:
    """Nothing listening is Unknown here, not the end: an engine that starts may still come."""
    said, _ = await run_program("http://127.0.0.1:9/metrics", "vLLM")
    reading = judge(parse(said, "vLLM"), gauges=demanded("vLLM"))
    assert (reading.verdict, "refused" in reading.reason) == (Verdict.UNKNOWN, True)


@pytest.mark.parametrize("answer", [chunked(page("vLLM", ["0"])), close_delimited(page("vLLM", ["0"]))])
async def test_framings(answer: Answer) -> None:
    """A chunked body and one that ends with its connection are read."""
    assert (await read(answer)).verdict is Verdict.IDLE


async def test_tls(tmp_path: Path) -> None:
    """G13 https is kept, and a certificate that nobody trusts is no obstacle over loopback."""
    async with serving(body(page("vLLM", ["0"])), tls=tls_context(tmp_path)) as script:
        said, _ = await run_program(f"https://127.0.0.1:{script.port}/metrics", "vLLM")
    assert judge(parse(said, "vLLM"), gauges=demanded("vLLM")).verdict is Verdict.IDLE


async def test_the_images_modules(tmp_path: Path) -> None:
    """A module in the working directory of the image does not stand in for the library's."""
    for module in ("os", "ssl", "http", "threading", "urllib"):
        (tmp_path / f"{module}.py").write_text("raise SystemExit(9)\n")
    async with serving(body(page("vLLM", ["0"]))) as script:
        said, _ = await run_program(f"http://127.0.0.1:{script.port}/metrics", "vLLM", cwd=tmp_path)
    assert said.endswith(b"#end\n")


async def test_labels_beyond_ascii() -> None:
    """A model name beyond ASCII comes through a container whose output knows only ASCII."""
    text = page("vLLM", ["0"]).replace('rank="0"', 'model_name="模型"')
    assert (await read(body(text))).verdict is Verdict.IDLE


async def test_bytes_waiting_for_the_engine() -> None:
    """N6 Bytes that a slow client has not taken, or that the engine has not read, make a member busy."""
    async with serving(body(page("vLLM", ["0"]))) as script:
        _reader, writer = await connect_and_stall(script)
        said, _ = await run_program(f"http://127.0.0.1:{script.port}/metrics", "vLLM")
        reading = judge(parse(said, "vLLM"), gauges=demanded("vLLM"))
        assert (reading.verdict, reading.in_flight) == (Verdict.BUSY, 0.0)
        assert "bytes wait in 1 connections" in reading.reason
        writer.close()
        await asyncio.sleep(0.2)
        said, _ = await run_program(f"http://127.0.0.1:{script.port}/metrics", "vLLM")
        assert judge(parse(said, "vLLM"), gauges=demanded("vLLM")).verdict is Verdict.IDLE


async def connect_and_stall(script: Script) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client whose answer is larger than it takes: the rest stays in the server's send queue."""
    whole, script.answers = script.answers, [body("x" * 30_000_000)]
    reader, writer = await asyncio.open_connection("127.0.0.1", script.port, limit=1024)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    await asyncio.sleep(0.3)
    script.answers = whole
    return reader, writer


def test_one_bounded_get_and_nothing_else() -> None:
    """G12 python3 -c with one loopback GET, 2 s, 1048576 bytes; nothing written, nobody signalled, nothing started."""
    argv = read_argv(url="http://127.0.0.1:8000/metrics", gauges=demanded("vLLM"))
    text = argv[2]
    assert argv == [
        "python3",
        "-c",
        text,
        "http://127.0.0.1:8000/metrics",
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
    ]
    assert text.count(".request(") == 1
    assert ".request('GET'" in text
    assert text.count("timeout=2") == 2
    assert "reading.join(2)" in text
    assert ".read(1048577)" in text
    tree = ast.parse(text)
    called = {
        node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    }
    assert not called & {
        "write",
        "kill",
        "killpg",
        "signal",
        "alarm",
        "system",
        "popen",
        "Popen",
        "run",
        "exec",
        "eval",
    }
    opened = [
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "open"
    ]
    assert [len(node.args) + len(node.keywords) for node in opened] == [
        1
    ]  # for reading, which is the default
    imported = {
        name.name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    assert imported == {"sys", "os", "ssl", "threading", "http.client", "urllib.parse"}


def test_it_fits_into_a_url() -> None:
    """The text stands in the URL of the exec request, in 3 KiB at most."""
    assert len(urlencode({"command": program_text()})) <= 3072


def test_it_parses_as_python_3_8() -> None:
    """The text, as it is sent, is Python 3.8: it runs in somebody else's image."""
    ast.parse(program_text(), feature_version=(3, 8))
