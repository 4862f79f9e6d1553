"""Small makers of the objects that tests decide on: complete enough to be real, short enough to be read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from apis.v1alpha1 import labels
from controller.clock import Instant, format_time
from controller.snapshot import PodView

START = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)
DEPLOYMENT_UID = "d0000000-0000-0000-0000-000000000001"


def at(seconds: float) -> Instant:
    """The API server's time, known exactly, `seconds` after the start of a test's story."""
    return Instant.exact(START + timedelta(seconds=seconds))


def pod(
    role: str = "server",
    ordinal: int = 0,
    *,
    deployment: str = "chat",
    uid: str = "",
    ready: bool = True,
    labelled: bool = True,
    ip: str = "",
    phase: str = "Running",
    container_id: str = "",
    restarts: int = 0,
    started: bool = True,
    deleted_at: datetime | None = None,
    command: tuple[str, ...] = ("vllm", "serve", "m", "--served-model-name", "m"),
    size: str = "1",
    **metadata: Any,
) -> PodView:
    """A Pod of the deployment `chat` on its seat; `started=False` is one whose engine never ran."""
    name = f"{deployment}-{role}-r{ordinal}-m0"
    uid = uid or f"uid-{role}-{ordinal}"
    status: dict[str, Any] = {"phase": phase if started else "Pending"}
    if started:
        status["podIP"] = ip or f"10.0.{len(role)}.{ordinal + 1}"
        status["conditions"] = [{"type": "Ready", "status": "True" if ready else "False"}]
        status["containerStatuses"] = [
            {
                "name": labels.MAIN_CONTAINER,
                "containerID": container_id or f"containerd://{uid}",
                "restartCount": restarts,
                "state": {"running": {"startedAt": format_time(START)}},
            }
        ]
    raw: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid,
            "resourceVersion": "7",
            "labels": {
                labels.NAME: labels.EBB,
                labels.INSTANCE: deployment,
                labels.COMPONENT: role,
                labels.MANAGED_BY: labels.EBB,
                labels.ROLE_KIND: "Server",
                labels.REPLICA: str(ordinal),
                labels.MEMBER: "0",
                labels.REPLICA_SIZE: size,
                **({labels.ENDPOINT_ELIGIBLE: "true"} if labelled else {}),
            },
            "annotations": {
                labels.SCRAPE: "true",
                labels.SCRAPE_PATH: "/metrics",
                labels.SCRAPE_PORT: "8000",
                labels.SCRAPE_SCHEME: "http",
            },
            "ownerReferences": [
                {
                    "apiVersion": labels.API_VERSION,
                    "kind": labels.KIND,
                    "name": deployment,
                    "uid": DEPLOYMENT_UID,
                    "controller": True,
                }
            ],
            **metadata,
        },
        "spec": {
            "nodeName": "node" if started else "",
            "containers": [{"name": labels.MAIN_CONTAINER, "image": "engine", "command": list(command)}],
        },
        "status": status,
    }
    if deleted_at is not None:
        raw["metadata"]["deletionTimestamp"] = format_time(deleted_at)
        raw["metadata"]["deletionGracePeriodSeconds"] = 30
    return PodView(raw)


def router_pod(index: int = 0, *, running: bool = True, restarts: int = 0, ip: str = "") -> PodView:
    """A Pod of the router of the deployment `chat`."""
    name = f"chat-router-{index}"
    state = {"running": {}} if running else {"waiting": {"reason": "ContainerCreating"}}
    return PodView(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"uid-{name}",
                "labels": {
                    labels.INSTANCE: "chat",
                    labels.COMPONENT: labels.ROUTER_COMPONENT,
                    labels.MANAGED_BY: labels.EBB,
                },
            },
            "spec": {},
            "status": {
                "phase": "Running",
                "podIP": ip or f"10.9.0.{index + 1}",
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [
                    {
                        "name": "router",
                        "containerID": f"containerd://{name}-{restarts}",
                        "restartCount": restarts,
                        "state": state,
                    }
                ],
            },
        }
    )
