"""What the audit log says about a controller: which Pods it deleted, and whether each delete named its victim."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Event = dict[str, Any]


def deletes_of_pods(writes: Iterable[Event]) -> list[Event]:
    """The deletes of Pods that the API server accepted."""
    return [
        event
        for event in writes
        if event["verb"] == "delete"
        and event["objectRef"]["resource"] == "pods"
        and event["responseStatus"]["code"] < 300
    ]


def without_uid(deletes: Iterable[Event]) -> list[str]:
    """The deletes that would have hit whatever carried the name."""
    return [
        event["objectRef"]["name"]
        for event in deletes
        if not ((event.get("requestObject") or {}).get("preconditions") or {}).get("uid")
    ]
