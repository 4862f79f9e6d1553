"""What one read of a member says. Pure, and three-valued at heart: what was not measured is never idle."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from controller.clock import Instant
from controller.engines.gauges import Gauge
from controller.engines.metrics_text import Labels, Sample
from controller.member_reader.envelope import Envelope

Series = Mapping[str, frozenset[Labels]]
"""Gauge name -> the label sets that it was published with."""


class Verdict(StrEnum):
    IDLE = "Idle"
    BUSY = "Busy"
    UNKNOWN = "Unknown"
    """Held: a later read may tell."""
    UNSUPPORTED = "Unsupported"
    """Refused: waiting will not help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One read of one member, or the reason why it was not read.

    Only a verdict of Idle on a complete reading may count towards a release. `in_flight` is None when nobody knows.
    """

    verdict: Verdict
    reason: str
    """One sentence for a person."""
    complete: bool = False
    """Every gauge demanded was there, and the text came back whole."""
    in_flight: float | None = None
    container_id: str = ""
    started_at: Instant | None = None
    finished_at: Instant | None = None
    series: Series = field(default_factory=lambda: MappingProxyType({}))


def held(reason: str) -> Reading:
    return Reading(verdict=Verdict.UNKNOWN, reason=reason)


def refused(reason: str) -> Reading:
    return Reading(verdict=Verdict.UNSUPPORTED, reason=reason)


def judge(
    envelope: Envelope, *, gauges: Sequence[Gauge], ranks: int = 1, previous: Series | None = None
) -> Reading:
    """The verdict on what came back from the member.

    `ranks`: data-parallel ranks that the command declares, each of which publishes every gauge. `previous`: the
    label sets of the read before, of the same container, or None.
    """
    if envelope.error:
        return held(f"the engine's metrics could not be read: {envelope.error}")
    if not envelope.whole:
        return held("the answer of the reader was cut short")
    if envelope.unreadable:
        return held(f"the engine served unreadable values: {envelope.unreadable[0]}")
    published = {sample.name for sample in envelope.samples}
    missing = [gauge.name for gauge in gauges if published.isdisjoint(gauge.names)]
    if missing:
        return held(f"the engine served no {', no '.join(missing)}")
    amounts: list[float] = []
    series: dict[str, frozenset[Labels]] = {}
    for gauge in gauges:
        rows = {name: [s for s in envelope.samples if s.name == name] for name in gauge.names}
        rows = {name: samples for name, samples in rows.items() if samples}
        for name, samples in rows.items():
            wrong = next((s for s in samples if not (math.isfinite(s.value) and s.value >= 0)), None)
            if wrong is not None:
                return held(f"{name} is {wrong.value:g}, which is no number of requests")
            series[name] = frozenset(sample.labels for sample in samples)
            if len(series[name]) < ranks:
                return held(
                    f"{name} speaks for {len(series[name])} of the {ranks} ranks that the command declares"
                )
        amounts.append(max(_sum(samples) for samples in rows.values()))
    total = sum(amounts)
    if not math.isfinite(total):
        return held(f"the gauges add up to {total:g}, which is no number of requests")
    changed = _changed(series, previous)
    if changed:
        return Reading(
            verdict=Verdict.UNKNOWN,
            reason=f"{changed} is published with other label sets than at the read before",
            in_flight=total or None,
            series=series,
        )
    verdict, reason = _work(total, envelope)
    return Reading(verdict=verdict, reason=reason, complete=True, in_flight=total, series=series)


def _work(total: float, envelope: Envelope) -> tuple[Verdict, str]:
    if total > 0:
        return Verdict.BUSY, f"the engine holds {total:g} in flight"
    if envelope.queued:
        # A request not yet taken up, or the end of an answer that a slow client has not taken: no gauge shows them.
        amount = sum(socket.queued_bytes for socket in envelope.queued)
        return Verdict.BUSY, f"{amount} bytes wait in {len(envelope.queued)} connections of the serving port"
    return Verdict.IDLE, "the engine holds nothing in flight"


def _sum(samples: Sequence[Sample]) -> float:
    """Plain addition: finite figures may add up to an infinite one, which is then seen (math.fsum would raise)."""
    return sum(sample.value for sample in samples)


def _changed(series: Series, previous: Series | None) -> str:
    if previous is None:
        return ""
    return next((name for name in (*series, *previous) if series.get(name) != previous.get(name)), "")
