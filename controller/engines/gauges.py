"""The gauges that say what an engine holds in flight, named once, so that the hook and the member reader
cannot disagree about what counts as work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class Gauge:
    """One figure that an engine must publish, under any one of its names.

    A release that renamed a gauge publishes one name or the other; should one ever publish both, the larger
    counts.
    """

    name: str
    older_names: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.older_names)


_GAUGES: Final[Mapping[str, tuple[Gauge, ...]]] = MappingProxyType(
    {
        "vLLM": (
            Gauge("vllm:num_requests_running"),
            # Counts a decoder's requests that wait for their KV, too.
            Gauge("vllm:num_requests_waiting"),
        ),
        # A scheduler writes all six with its statistics, zeros for the queues that its mode does not have.
        "SGLang": (
            Gauge("sglang:num_running_reqs"),
            Gauge("sglang:num_queue_reqs"),
            Gauge("sglang:num_prefill_bootstrap_queue_reqs", ("sglang:num_prefill_prealloc_queue_reqs",)),
            Gauge("sglang:num_prefill_inflight_queue_reqs"),
            Gauge("sglang:num_decode_prealloc_queue_reqs"),
            Gauge("sglang:num_decode_transfer_queue_reqs"),
        ),
    }
)


def demanded(engine: str) -> tuple[Gauge, ...]:
    """Every gauge a reading must find before it may say idle; empty for an engine that has no gauge list."""
    return _GAUGES.get(engine, ())


def accepted_names(engine: str) -> tuple[str, ...]:
    """Every metric name that counts as work in flight, older names included."""
    return tuple(name for gauge in demanded(engine) for name in gauge.names)
