"""Raw objects as the API server would send them, for what the command line prints."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from apis.v1alpha1 import labels
from controller.clock import format_time

T0 = datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)
"""Admission of the operation in these tests."""

POLICY = {"withdrawSeconds": 30, "drainSeconds": 240, "settleSeconds": 30, "totalSeconds": 300}


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def stamp(seconds: float) -> str:
    return format_time(at(seconds))


def deployment(*, replicas: int = 2, **status: Any) -> dict[str, Any]:
    """A ModelDeployment `chat` with one role `server`; keywords go into its status."""
    return {
        "metadata": {
            "namespace": "prod",
            "name": "chat",
            "uid": "uid-chat",
            "creationTimestamp": stamp(-7500),
        },
        "spec": {"engine": {"name": "vLLM"}, "roles": [{"name": "server", "replicas": replicas}]},
        "status": {
            "phase": "Ready",
            "roleSummary": "1R2S",
            "endpoint": "http://chat-router.prod.svc:8081",
            **status,
        },
    }


def retirement(state: str, *, phase_started: float = 0, **fields: Any) -> dict[str, Any]:
    """An operation on server/1, admitted at T0 with the default budgets."""
    return {
        "roleName": "server",
        "replicaOrdinal": 1,
        "cause": "ReplicasReduced",
        "observedGeneration": 2,
        "targetMembers": [
            {
                "uid": "uid-1",
                "name": "chat-server-r1-m0",
                "containerID": "containerd://one",
                "restartCount": 0,
            }
        ],
        "policy": POLICY,
        "state": state,
        "reason": "the reason",
        "startedAt": stamp(0),
        "deadline": stamp(300),
        "phaseStartedAt": stamp(phase_started),
        **fields,
    }


def pod(
    ordinal: int | None,
    *,
    uid: str | None = None,
    role: str = "server",
    member: int = 0,
    size: int = 1,
    ready: bool = True,
    eligible: bool = True,
    deleted: float | None = None,
    phase: str = "Running",
    owner: str = "uid-chat",
    container: str = "containerd://one",
    state: dict[str, Any] | None = None,
    restarts: int = 0,
    conditions: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """A Pod of `chat`. `deleted` is its deletion timestamp in seconds after T0."""
    seat = {} if ordinal is None else {labels.REPLICA: str(ordinal), labels.MEMBER: str(member)}
    metadata: dict[str, Any] = {
        "namespace": "prod",
        "name": f"chat-{role}-r{ordinal}-m{member}" if ordinal is not None else f"chat-{role}-stray",
        "uid": uid or f"uid-{ordinal}",
        "creationTimestamp": stamp(-600),
        "labels": {
            labels.INSTANCE: "chat",
            labels.COMPONENT: role,
            labels.REPLICA_SIZE: str(size),
            **seat,
            **({labels.ENDPOINT_ELIGIBLE: "true"} if eligible else {}),
        },
        "ownerReferences": [
            {"apiVersion": labels.API_VERSION, "kind": labels.KIND, "uid": owner, "controller": True}
        ],
    }
    if deleted is not None:
        metadata["deletionTimestamp"] = stamp(deleted)
    return {
        "metadata": metadata,
        "spec": {"nodeName": "node-1", "containers": [{"name": "main"}]},
        "status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}, *(conditions or [])],
            "containerStatuses": [
                {
                    "name": "main",
                    "containerID": container,
                    "restartCount": restarts,
                    "started": ready,
                    "state": state or {"running": {}},
                }
            ],
        },
    }
