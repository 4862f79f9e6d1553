"""/metrics reads like the real engines' one."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

from controller.engines.gauges import demanded
from e2e.engine.faults import Faults
from e2e.engine.metrics import page
from e2e.engine.settings import Settings, parse
from e2e.engine.work import Work

REAL_VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 0.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="tiny"} 0.0
"""
"""Lines of a real vLLM 0.32 at rest."""

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def settings(flavour: str, *argv: str) -> Settings:
    first = ["serve", "tiny"] if flavour == "vllm" else ["--model-path", "tiny", "--enable-metrics"]
    return parse(flavour, [*first, *argv], {})


def series(text: str) -> Series:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def total(text: str, name: str) -> float:
    return sum(value for (sample, _), value in series(text).items() if sample == name)


def at_rest(flavour: str, faults: Faults | None = None) -> str:
    return page(settings(flavour), Work(slots=8, ranks=1), faults or Faults())


def test_vllm_at_rest_reads_like_a_real_one() -> None:
    """Names, help, type, labels and values of the gauges are those of a real vLLM at rest, line by line."""
    assert REAL_VLLM in at_rest("vllm")


@pytest.mark.parametrize(("flavour", "engine"), [("vllm", "vLLM"), ("sglang", "SGLang")])
def test_every_gauge_that_is_demanded_is_there(flavour: str, engine: str) -> None:
    """An idle engine publishes each gauge the controller wants to see, at zero."""
    found = series(at_rest(flavour))
    for gauge in demanded(engine):
        assert [value for (name, _), value in found.items() if name == gauge.name] == [0.0]


async def test_counts_follow_the_work() -> None:
    """Requests beyond the slots wait, ranks have their own series, and what waits counts by reason too."""
    work = Work(slots=2, ranks=2)
    leave = asyncio.Event()

    async def one() -> None:
        async with work.request():
            await leave.wait()

    tasks = [asyncio.create_task(one()) for _ in range(5)]
    await asyncio.sleep(0)
    text = page(settings("vllm", "--data-parallel-size", "2"), work, Faults())
    assert total(text, "vllm:num_requests_running") == 2
    assert total(text, "vllm:num_requests_waiting") == 3
    assert total(text, "vllm:num_requests_waiting_by_reason") == 3
    assert {labels for name, labels in series(text) if name == "vllm:num_requests_running"} == {
        (("engine", "0"), ("model_name", "tiny")),
        (("engine", "1"), ("model_name", "tiny")),
    }
    leave.set()
    await asyncio.gather(*tasks)
    assert work.in_flight == 0
    assert work.ended == {"length": 5}


async def test_a_cancelled_request_is_counted_down_wherever_it_stood() -> None:
    """A request that is given up while it waits or runs leaves no count behind, and its slot is free again."""
    work = Work(slots=1, ranks=1)

    async def one() -> None:
        async with work.request():
            await asyncio.Event().wait()

    running, waiting = (asyncio.create_task(one()) for _ in range(2))
    await asyncio.sleep(0)
    for task in (waiting, running):
        task.cancel()
    await asyncio.gather(running, waiting, return_exceptions=True)
    assert work.in_flight == 0
    assert work.ended == {"abort": 2}
    async with asyncio.timeout(1), work.request():
        assert work.running.total() == 1


def test_faults_change_what_is_read() -> None:
    """Dropped families are gone, values stand as they were told, and the rest is left alone."""
    text = at_rest(
        "vllm", Faults(drop=("vllm:num_requests_waiting",), values={"vllm:num_requests_running": "NaN"})
    )
    assert "vllm:num_requests_waiting{" not in text
    assert "vllm:num_requests_waiting_by_reason{" in text
    assert 'vllm:num_requests_running{engine="0",model_name="tiny"} NaN\n' in text


def test_bodies_that_are_no_evidence() -> None:
    """A page of HTML, statistics switched off in either way, and a body over 1 MiB with the gauges at its end."""
    assert at_rest("vllm", Faults(metrics="html")).startswith("<html>")
    for text in (
        at_rest("vllm", Faults(metrics="off")),
        page(settings("vllm", "--disable-log-stats"), Work(slots=1, ranks=1), Faults()),
    ):
        assert "vllm:" not in text
        assert "python_info" in text
    huge = at_rest("vllm", Faults(metrics="huge"))
    assert huge.index("vllm:num_requests_running") > 1024 * 1024
    assert total(huge, "vllm:num_requests_running") == 0


def test_a_model_name_may_hold_anything() -> None:
    """Quotes, braces and commas in a label value are escaped so that a parser gets them back."""
    odd = parse("vllm", ["serve", "x", "--served-model-name", 'a"},{\\b'], {})
    text = page(odd, Work(slots=1, ranks=1), Faults())
    labels = next(labels for name, labels in series(text) if name == "vllm:num_requests_running")
    assert dict(labels)["model_name"] == 'a"},{\\b'
