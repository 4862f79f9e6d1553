"""What the audit log says about a controller: which Pods it deleted, and whether it kept the protocol's invariants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final

from unit.invariants import ApiWrite, violations

Event = dict[str, Any]
WRITING: Final = frozenset({"create", "update", "patch", "delete"})


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


def broken_invariants(events: Iterable[Event], *, user: str) -> list[str]:
    """Every invariant of the protocol that the controller of this user broke; the events of all users, oldest first."""
    return violations(api_writes(events, user=user))


def api_writes(events: Iterable[Event], *, user: str) -> Iterator[ApiWrite]:
    """The writes among audit events, those of `user` as the controller's own."""
    for event in events:
        reference = event.get("objectRef") or {}
        if event["verb"] not in WRITING or event.get("stage") != "ResponseComplete" or not reference:
            continue
        body = event.get("requestObject") or {}
        yield ApiWrite(
            verb=event["verb"],
            resource=reference["resource"],
            subresource=reference.get("subresource", ""),
            namespace=reference.get("namespace", ""),
            name=reference.get("name") or (body.get("metadata") or {}).get("name", ""),
            body=body,
            answer=event.get("responseObject") or {},
            code=int((event.get("responseStatus") or {}).get("code", 0)),
            at=datetime.fromisoformat(event["requestReceivedTimestamp"]),
            own=event["user"]["username"] == user,
        )
