"""ModelDeployments of these tests: how they are written, and what is read off them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from apis.v1alpha1 import labels
from controller.snapshot import PodView
from unit.api_server.objects import routed
from unit.invariants import ApiWrite

Raw = dict[str, Any]


def manifest(**changes: Any) -> Raw:
    """A ModelDeployment `chat` of two replicas behind a router; `changes` of its spec, None takes a field out."""
    body = routed(replicas_of(2))
    spec = body["spec"] | changes
    body["spec"] = {field: value for field, value in spec.items() if value is not None}
    return body


def replicas_of(replicas: int, **fields: Any) -> Raw:
    """A role `server` of so many replicas."""
    return {"name": "server", "image": "engine:1", "replicas": replicas} | fields


def phase(deployment: Raw) -> str:
    return str((deployment.get("status") or {}).get("phase", ""))


def operation(deployment: Mapping[str, Any]) -> Raw:
    """`status.retirement`, empty without one."""
    return (deployment.get("status") or {}).get("retirement") or {}


def state(deployment: Mapping[str, Any]) -> str:
    """The state of the operation, "" without one."""
    return str(operation(deployment).get("state", ""))


def states_stored(writes: Sequence[ApiWrite]) -> list[str]:
    """The states that an operation was stored in, in order and without repetition; "" is a cleared record."""
    found = [""]
    for write in writes:
        if write.is_of("modeldeployments", "status") and write.done and state(write.answer) != found[-1]:
            found.append(state(write.answer))
    return found[1:]


def condition(deployment: Raw, kind: str) -> Raw:
    conditions: Sequence[Raw] = (deployment.get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if c["type"] == kind), {})


def settled(deployment: Raw) -> bool:
    """Everything that this spec takes away has left."""
    found = condition(deployment, "RemovalsSettled")
    return bool(
        found.get("status") == "True"
        and found.get("observedGeneration") == deployment["metadata"]["generation"]
    )


def labelled(pod: PodView) -> bool:
    return pod.labels.get(labels.ENDPOINT_ELIGIBLE) == "true"
