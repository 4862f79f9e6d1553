"""What Prometheus can know about the controller."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

Key = tuple[str, str]


class Metrics:
    """All series, in a registry of their own so that several controllers can live in one test."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry if registry is not None else CollectorRegistry()
        self._reconciles = Counter(
            "ebb_reconciles",
            "Passes over a deployment by outcome: success, retry (a call failed), error (a defect).",
            ["outcome"],
            registry=self.registry,
        )
        self._reconcile_seconds = Histogram(
            "ebb_reconcile_seconds", "How long a pass took.", buckets=SECONDS, registry=self.registry
        )
        self._leader = Gauge(
            "ebb_leader", "1 in the process that may act, 0 in one that stands by.", registry=self.registry
        )
        self._queue_depth = Gauge(
            "ebb_queue_depth",
            "Deployments that wait for a worker; in a process that stands by, those it would begin with.",
            registry=self.registry,
        )
        self._transitions = Counter(
            "ebb_retirement_transitions",
            "States that retirements entered; Aborted and Completed are ends.",
            ["state"],
            registry=self.registry,
        )
        self._retirements = Gauge(
            "ebb_retirements", "Retirements that are in a state now.", ["state"], registry=self.registry
        )
        self._requests = Counter(
            "ebb_api_requests",
            "Requests to the API server by verb and status; code 0: no answer, 101: an exec that was let in.",
            ["verb", "code"],
            registry=self.registry,
        )
        self._request_seconds = Histogram(
            "ebb_api_request_seconds",
            "How long a request to the API server took. Watches are left out: they end when they end.",
            ["verb"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self._silent_seconds = Gauge(
            "ebb_informer_silent_seconds",
            "Since when the API server has said nothing about a collection; -1 before its first list.",
            ["resource"],
            registry=self.registry,
        )
        self._state_of: dict[Key, str] = {}

    def watch_process(self) -> None:
        """Add the series of the process itself (CPU, memory, open files, garbage collection)."""
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def watch_leader(self, leads: Callable[[], float]) -> None:
        self._leader.set_function(leads)

    def watch_queue(self, depth: Callable[[], float]) -> None:
        self._queue_depth.set_function(depth)

    def watch_informers(self, silent_for: Mapping[str, Callable[[], float | None]]) -> None:
        """Ask each informer, by the name of its resource, how long it has heard nothing."""
        for resource, ask in silent_for.items():
            self._silent_seconds.labels(resource).set_function(_or_minus_one(ask))

    def reconciled(self, *, outcome: str, seconds: float) -> None:
        self._reconciles.labels(outcome).inc()
        self._reconcile_seconds.observe(seconds)

    def requested(self, verb: str, status: int, seconds: float) -> None:
        """An Observer of the HTTP client."""
        self._requests.labels(verb, str(status)).inc()
        if verb != "WATCH":
            self._request_seconds.labels(verb).observe(seconds)

    def retirement_entered(self, state: str) -> None:
        """A retirement has been stored in `state`."""
        self._transitions.labels(state).inc()

    def retirement_is(self, key: Key, state: str | None) -> None:
        """Which state the operation of a deployment is in; None: it has none, or is gone itself."""
        before = self._state_of.pop(key, None)
        if state is not None:
            self._state_of[key] = state
        if before != state:
            counts = Tally(self._state_of.values())
            for changed in filter(None, (before, state)):
                self._retirements.labels(changed).set(counts[changed])


def _or_minus_one(ask: Callable[[], float | None]) -> Callable[[], float]:
    def answer() -> float:
        seconds = ask()
        return -1.0 if seconds is None else seconds

    return answer
