"""`vllm-router` (vllm-project/router, Rust) 0.1.17: withdraws by label, lists its workers, counts what is open.

Measured: taking the selector label off removes the row in under 0.05 s; `running_requests` of a removed worker stays
right until its last stream has ended; `processed_requests_total` grows at each dispatch. Its answer to a removal is the
same 200 for a worker that it never had, and its API port answers `/metrics` with an *engine's* metrics, so neither is
ever used as evidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlsplit

import orjson

from controller.engines.metrics_text import samples
from controller.pod_renderer.router import API_PORT, METRICS_PORT
from controller.routers.base import (
    Abilities,
    AnswerKind,
    Fetch,
    RouterAnswer,
    UnreachableError,
    is_running,
    process_of,
)
from controller.snapshot import PodView

DISPATCHED: Final = "vllm_router_processed_requests_total"
ACTIVE: Final = "vllm_router_active_workers"
"""Served from the first moment, with no worker and no request yet: what a page without it says is no router's."""
IN_FLIGHT: Final = "vllm_router_running_requests"


class VllmRouter:
    """The adapter for `vllm-router` 0.1.17 under a policy that counts (`cache_aware`, which the renderer pins)."""

    name = "vllm-router"
    abilities = Abilities(
        versions="0.1.17",
        follows_labels=True,
        removes_by_api=True,
        counts_dispatches=True,
        exact_in_flight=True,
        settle_seconds=5.0,
    )

    async def ask(self, router: PodView, *, fetch: Fetch, timeout: float) -> RouterAnswer:
        def answer(kind: AnswerKind, detail: str = "", **facts: Any) -> RouterAnswer:
            return RouterAnswer(
                router=router.name,
                router_uid=router.uid,
                process=process_of(router),
                kind=kind,
                detail=detail,
                **facts,
            )

        if not is_running(router):
            return answer(AnswerKind.NOT_RUNNING, "no container of it runs")
        if not router.ip:
            return answer(AnswerKind.UNKNOWN, "it has no address")
        try:
            listed, listing = await fetch(
                "GET", f"http://{_host(router.ip)}:{API_PORT}/workers", timeout=timeout
            )
            counted, metrics = await fetch(
                "GET", f"http://{_host(router.ip)}:{METRICS_PORT}/metrics", timeout=timeout
            )
        except UnreachableError as error:
            return answer(AnswerKind.UNKNOWN, str(error))
        if listed != 200:
            return answer(AnswerKind.UNKNOWN, f"/workers answered {listed}")
        if counted != 200:
            return answer(AnswerKind.UNKNOWN, f"/metrics answered {counted}")
        try:
            rows = parse_workers(listing)
            if not any(samples(metrics, ACTIVE)):
                raise ValueError(f"/metrics answered without {ACTIVE}")
            return answer(
                AnswerKind.COMPLETE,
                rows=rows,
                dispatched=per_worker(metrics, DISPATCHED),
                in_flight=per_worker(metrics, IN_FLIGHT),
            )
        except ValueError as error:
            return answer(AnswerKind.UNKNOWN, str(error))

    async def remove(self, router: PodView, address: str, *, fetch: Fetch, timeout: float) -> None:
        worker = quote(f"http://{address}", safe="")
        await fetch(
            "POST", f"http://{_host(router.ip)}:{API_PORT}/remove_worker?url={worker}", timeout=timeout
        )


def parse_workers(body: bytes) -> tuple[str, ...]:
    """The addresses (`<ip>:<port>`) of a `/workers` answer. ValueError unless it is whole and of the known shape.

    An explicit empty list is a real empty set; a `total` that differs from the number of rows is not an answer.
    """
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise ValueError("/workers did not answer with whole JSON") from None
    workers = answer.get("workers") if isinstance(answer, dict) else None
    total = answer.get("total") if isinstance(answer, dict) else None
    if not isinstance(workers, list) or type(total) is not int:
        raise ValueError("/workers answered without a list of workers and its total")
    if total != len(workers):
        raise ValueError(f"/workers says {total} workers and lists {len(workers)}")
    return tuple(_address(worker) for worker in workers)


def per_worker(body: bytes, metric: str) -> Mapping[str, float]:
    """The value of each worker's series of one metric, by address. Raises ValueError for unreadable text."""
    values: dict[str, float] = {}
    for labels, value in samples(body, metric):
        address = _netloc(labels.get("worker", ""))
        values[address] = values.get(address, 0.0) + value
    return values


def _address(worker: Any) -> str:
    url = worker.get("url") if isinstance(worker, dict) else None
    address = _netloc(url) if isinstance(url, str) else ""
    if not address:
        raise ValueError("/workers lists a row without a readable url")
    return address


def _netloc(url: str) -> str:
    """`<ip>:<port>` of a worker URL, whose data-parallel rank (`…@0`) is part of the same Pod. "" if unreadable."""
    try:
        parts = urlsplit(url.partition("@")[0])
        return f"{_host(parts.hostname)}:{parts.port}" if parts.hostname and parts.port else ""
    except ValueError:
        return ""


def _host(ip: str) -> str:
    return f"[{ip}]" if ":" in ip else ip
