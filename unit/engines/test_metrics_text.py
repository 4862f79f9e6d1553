"""Prometheus text, strictly read."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.exposition import generate_latest

from controller.engines.metrics_text import SampleCollector, UnreadableRowError, parse_row, samples

FIXTURES = Path(__file__).parent / "fixtures"
RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"


def values(text: bytes, metric: str) -> list[float]:
    return [value for _, value in samples(text, metric)]


def test_a_real_page() -> None:
    """The page of a vLLM 0.32 with two ranks gives one sample per rank, and no longer name counts."""
    text = (FIXTURES / "vllm-0.32-dp2-busy.prom").read_bytes()
    assert list(samples(text, RUNNING)) == [
        ({"engine": "0", "model_name": "tiny"}, 3.0),
        ({"engine": "1", "model_name": "tiny"}, 3.0),
    ]
    assert values(text, WAITING) == [0.0, 0.0]


@pytest.mark.parametrize(
    ("row", "value"),
    [
        ("m 1", 1.0),
        ("m\t1e3", 1000.0),
        ("m{} -0", 0.0),
        ("m{} .5", 0.5),
        ('m { a = "b" , } 2 ', 2.0),
        ('m{a="}"}3', 3.0),
        ('m{a="b,c",d="\\"{x} 9"} 4 1700000000000', 4.0),
        ("m 5 -7", 5.0),
        ("  m 6", 6.0),
        ("m +Inf", float("inf")),
        ("m -inf", float("-inf")),
    ],
)
def test_a_sample(row: str, value: float) -> None:
    """Every spelling of a sample is read: braces, commas and quotes in labels, blanks, timestamps."""
    found = parse_row(row.encode(), {b"m"})
    assert found is not None
    assert found.value == value


@pytest.mark.parametrize(
    "row",
    [
        "m",
        "m ",
        "m{} ",
        "m{",
        'm{a="b"',
        'm{a="b} 1',
        "m{a=b} 1",
        'm{"a"} 1',
        'm{a="b" c="d"} 1',
        "m many",
        "m 1_000",
        "m 0x10",
        "m 1 soon",
        "m 1 2 3",
        "m 1e",
        "m 1\r",
        "m-1",
        "m{}x",
        'm{a="\udcff"} 1',
    ],
)
def test_not_a_sample(row: str) -> None:
    """A row with a wanted name that is no sample is reported, never skipped and never taken for zero."""
    with pytest.raises(UnreadableRowError):
        parse_row(row.encode("utf-8", "surrogateescape"), {b"m"})


@pytest.mark.parametrize("row", ["", "# m 1", "mm 1", "m_total 1", "m:x 1", "n 1", "<html>", 'n{a="m 1"} 2'])
def test_another_row(row: str) -> None:
    """Comments and other names, longer ones too, are not the metric."""
    assert parse_row(row.encode(), {b"m"}) is None


def test_a_row_cut_short() -> None:
    """A text that ends without a newline ends in the middle of a row, which may have been any row."""
    with pytest.raises(UnreadableRowError):
        samples(b"m 1\nm 2", "m")


@given(
    pieces=st.lists(st.integers(1, 40), max_size=60),
    rows=st.dictionaries(st.text(alphabet='ab{}",\\\n ', max_size=8), st.floats(0, 1e9), max_size=5),
)
def test_pieces_and_escapes(pieces: list[int], rows: dict[str, float]) -> None:
    """What prometheus_client writes is read back, wherever the text is cut into pieces."""
    registry = CollectorRegistry()
    gauge = Gauge("m", "with {braces}", ["label"], registry=registry)
    for label, value in rows.items():
        gauge.labels(label).set(value)
    text = generate_latest(registry)
    collector = SampleCollector({"m"})
    for size in pieces:
        collector.feed(text[:size])
        text = text[size:]
    collector.feed(text)
    collector.close()
    assert collector.unreadable == []
    assert {dict(sample.labels)["label"]: sample.value for sample in collector.samples} == rows
