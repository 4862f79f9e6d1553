"""What the engine can be told to do wrong, at its start or while it runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

METRICS_MODES = ("", "hang", "html", "half", "huge", "off", "reset", "error")
TLS_MODES = ("", "refuse")


@dataclass(frozen=True)
class Faults:
    """Everything at its default is an engine in good health."""

    start_seconds: float = 0.0
    """It listens only this long after its start, as one that loads a model. At the start only."""
    tls: str = ""
    """`refuse`: speaks plain HTTP although it was given a certificate, so that every handshake fails. At the
    start only."""
    unhealthy: bool = False
    """/health answers 503."""
    metrics: str = ""
    """What /metrics does: `hang` never answers, `html` is a page with status 200, `half` stops half way through
    the body it announced, `huge` puts more than 1 MiB before the gauges, `off` has no gauges as an engine
    whose statistics are switched off, `reset` closes the connection, `error` is status 500."""
    metrics_seconds: float = 0.0
    """/metrics answers this late."""
    drop: tuple[str, ...] = ()
    """Metric families left out."""
    values: Mapping[str, str] = field(default_factory=dict)
    """What stands as the value of a metric instead of the count, by its name: `NaN`, `-1`, `much`."""
    exit_code: int | None = None
    """The process ends with this code at once."""


def parse_faults(text: str) -> Faults:
    """From a JSON object with the field names above; ValueError names what is wrong."""
    raw = json.loads(text or "{}")
    if not isinstance(raw, dict):
        raise ValueError("faults are one JSON object")
    known = {entry.name for entry in fields(Faults)}
    if unknown := sorted(set(raw) - known):
        raise ValueError(f"no such fault: {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    faults = Faults(**raw | {"drop": tuple(raw.get("drop", ()))})
    for name, value, choices in (
        ("metrics", faults.metrics, METRICS_MODES),
        ("tls", faults.tls, TLS_MODES),
    ):
        if value not in choices:
            raise ValueError(f"{name}: {value!r} is none of {', '.join(repr(choice) for choice in choices)}")
    return faults


def as_json(faults: Faults) -> dict[str, Any]:
    return {entry.name: getattr(faults, entry.name) for entry in fields(Faults)}
