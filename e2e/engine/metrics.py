"""The text of /metrics, with families and label sets as the real engines publish them."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

from .faults import Faults
from .settings import Settings
from .work import Work

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
HUGE = 1_200_000
"""Bytes before the gauges of a body that is longer than any reader may take (1 MiB)."""

Sample = tuple[str, dict[str, str], str]


def page(settings: Settings, work: Work, faults: Faults) -> str:
    """The body of one answer."""
    if faults.metrics == "html":
        return f"<html><body><h1>{html.escape(settings.model)}</h1><p>Welcome.</p></body></html>\n"
    parts = [_process()]
    if faults.metrics == "huge":
        parts.append(_padding())
    if settings.statistics and faults.metrics != "off":
        families = _vllm(settings, work) if settings.flavour == "vllm" else _sglang(settings, work)
        parts += [_family(family, faults) for family in families if family[0] not in faults.drop]
    return "".join(parts)


Family = tuple[str, str, str, Sequence[tuple[dict[str, str], float]]]


def _vllm(settings: Settings, work: Work) -> Iterator[Family]:
    ranks = [{"engine": str(rank), "model_name": settings.model} for rank in range(work.ranks)]
    running = [work.running[rank] for rank in range(work.ranks)]
    waiting = [work.waiting[rank] for rank in range(work.ranks)]
    yield (
        "vllm:num_requests_running",
        "gauge",
        "Number of requests in model execution batches.",
        list(zip(ranks, map(float, running), strict=True)),
    )
    yield (
        "vllm:num_requests_waiting",
        "gauge",
        "Number of requests waiting to be processed.",
        list(zip(ranks, map(float, waiting), strict=True)),
    )
    yield (
        "vllm:num_requests_waiting_by_reason",
        "gauge",
        "Number of waiting requests by reason.",
        [
            (labels | {"reason": reason}, float(count if reason == "capacity" else 0))
            for labels, count in zip(ranks, waiting, strict=True)
            for reason in ("capacity", "deferred")
        ],
    )
    yield (
        "vllm:engine_sleep_state",
        "gauge",
        "Engine sleep state.",
        [
            (labels | {"sleep_state": state}, float(state == "awake"))
            for labels in ranks
            for state in ("awake", "weights_offloaded", "discard_all")
        ],
    )
    yield (
        "vllm:kv_cache_usage_perc",
        "gauge",
        "KV-cache usage. 1 means 100 percent usage.",
        [(labels, min(1.0, count / settings.slots)) for labels, count in zip(ranks, running, strict=True)],
    )
    yield (
        "vllm:generation_tokens_total",
        "counter",
        "Number of generation tokens processed.",
        [(ranks[0], float(work.generated))],
    )
    yield (
        "vllm:request_success_total",
        "counter",
        "Count of successfully processed requests.",
        [
            (ranks[0] | {"finished_reason": reason}, float(work.ended[reason]))
            for reason in ("stop", "length", "abort", "error", "repetition")
        ],
    )


def _sglang(settings: Settings, work: Work) -> Iterator[Family]:
    ranks = [
        {"engine_type": "unified", "model_name": settings.model, "pp_rank": "0", "tp_rank": "0"}
        | ({"dp_rank": str(rank)} if work.ranks > 1 else {})
        for rank in range(work.ranks)
    ]
    counts = {
        "sglang:num_running_reqs": ("The number of running requests.", work.running),
        "sglang:num_queue_reqs": ("The number of requests in the waiting queue.", work.waiting),
        "sglang:num_prefill_bootstrap_queue_reqs": ("The number of requests in the bootstrap queue.", {}),
        "sglang:num_prefill_inflight_queue_reqs": ("The number of requests in the inflight queue.", {}),
        "sglang:num_decode_prealloc_queue_reqs": ("The number of requests in the prealloc queue.", {}),
        "sglang:num_decode_transfer_queue_reqs": ("The number of requests in the transfer queue.", {}),
    }
    for name, (text, by_rank) in counts.items():
        values = [float(by_rank.get(rank, 0)) for rank in range(work.ranks)]
        yield name, "gauge", text, list(zip(ranks, values, strict=True))
    yield (
        "sglang:generation_tokens_total",
        "counter",
        "Number of generation tokens processed.",
        [(ranks[0], float(work.generated))],
    )


def _family(family: Family, faults: Faults) -> str:
    name, kind, text, samples = family
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    for labels, value in samples:
        pairs = ",".join(f'{key}="{_escaped(labels[key])}"' for key in sorted(labels))
        lines.append(f"{name}{{{pairs}}} {faults.values.get(name, value)}")
    return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _process() -> str:
    return (
        "# HELP python_info Python platform information\n"
        "# TYPE python_info gauge\n"
        'python_info{implementation="CPython",major="3",minor="11",patchlevel="2",version="3.11.2"} 1.0\n'
    )


def _padding() -> str:
    line = 'sample:padding{number="%06d"} 0.0\n'
    return "".join(line % number for number in range(HUGE // len(line % 0) + 1))
