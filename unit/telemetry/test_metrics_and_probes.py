"""Metrics and probes, asked for over HTTP as the kubelet and Prometheus do."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from controller.settings import Address
from controller.telemetry.metrics import Metrics
from controller.telemetry.server import Check, serve_telemetry, telemetry_app


@asynccontextmanager
async def served(
    *,
    live: Mapping[str, Check] | None = None,
    ready: Mapping[str, Check] | None = None,
    metrics: Metrics | None = None,
) -> AsyncGenerator[str, None]:
    registry = metrics.registry if metrics else CollectorRegistry()
    app = telemetry_app(live=live or {}, ready=ready or {}, registry=registry)
    async with serve_telemetry(app, bind=Address("127.0.0.1", 0)) as address:
        yield f"http://127.0.0.1:{address.port}"


async def get(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


async def test_a_probe_names_what_is_missing() -> None:
    """A probe is 200 while every check is well and 503 with the sentence of one that is not, checked each time."""
    missing: str | None = "pods have not been listed"
    async with served(
        live={"loop": lambda: None}, ready={"caches": lambda: missing, "x": lambda: None}
    ) as url:
        assert await get(f"{url}/healthz") == (200, "loop: ok\n")
        assert await get(f"{url}/readyz") == (503, "caches: pods have not been listed\nx: ok\n")
        missing = None
        assert await get(f"{url}/readyz") == (200, "caches: ok\nx: ok\n")


async def test_an_address_in_use_is_an_error() -> None:
    """Two servers on one address: the second fails at once."""
    async with served() as url:
        port = int(url.rpartition(":")[2])
        app = telemetry_app(live={}, ready={}, registry=CollectorRegistry())
        with pytest.raises(OSError, match="in use"):
            async with serve_telemetry(app, bind=Address("127.0.0.1", port)):
                pass


@pytest.mark.parametrize(("leads", "figure"), [(True, 1.0), (False, 0.0)])
def test_leadership_is_a_series(leads: bool, figure: float) -> None:
    """ebb_leader says at each scrape whether this process may act."""
    metrics = Metrics()
    metrics.watch_leader(lambda: float(leads))
    assert metrics.registry.get_sample_value("ebb_leader") == figure


async def test_the_series_say_what_happened() -> None:
    """Passes, queue, retirements, API requests and silence are there under their names."""
    metrics = Metrics()
    metrics.reconciled(outcome="success", seconds=0.02)
    metrics.watch_queue(lambda: 3.0)
    metrics.requested("PATCH", 409, 0.01)
    metrics.requested("WATCH", 200, 400.0)
    metrics.watch_informers({"pods": lambda: 2.5, "services": lambda: None})
    metrics.retirement_entered("Draining")
    metrics.retirement_is(("ns", "a"), "Draining")
    metrics.retirement_is(("ns", "b"), "Draining")
    metrics.retirement_is(("ns", "a"), "Deleting")
    metrics.retirement_is(("ns", "b"), None)
    async with served(metrics=metrics) as url:
        status, text = await get(f"{url}/metrics")
    assert status == 200
    for line in (
        'ebb_reconciles_total{outcome="success"} 1.0',
        "ebb_reconcile_seconds_count 1.0",
        "ebb_queue_depth 3.0",
        'ebb_api_requests_total{code="409",verb="PATCH"} 1.0',
        'ebb_api_requests_total{code="200",verb="WATCH"} 1.0',
        'ebb_api_request_seconds_count{verb="PATCH"} 1.0',
        'ebb_informer_silent_seconds{resource="pods"} 2.5',
        'ebb_informer_silent_seconds{resource="services"} -1.0',
        'ebb_retirement_transitions_total{state="Draining"} 1.0',
        'ebb_retirements{state="Draining"} 0.0',
        'ebb_retirements{state="Deleting"} 1.0',
    ):
        assert line in text.splitlines()
    assert 'ebb_api_request_seconds_count{verb="WATCH"}' not in text


async def test_the_process_is_among_the_series() -> None:
    """Memory, CPU and open files of the process are reported when asked for."""
    metrics = Metrics()
    metrics.watch_process()
    async with served(metrics=metrics) as url:
        _, text = await get(f"{url}/metrics")
    assert "process_resident_memory_bytes" in text
    assert "python_gc_objects_collected_total" in text
