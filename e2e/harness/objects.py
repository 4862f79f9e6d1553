"""ModelDeployments of the sample engine, as a user would write them."""

from __future__ import annotations

from typing import Any

from apis.v1alpha1 import labels
from e2e.images import build

MODEL = "tiny"


def model_deployment(
    name: str,
    *,
    namespace: str,
    replicas: int = 2,
    routed: bool = True,
    grace: int | None = None,
    command: list[str] | None = None,
    extra_args: list[str] | None = None,
    env: dict[str, str] | None = None,
    retirement: dict[str, Any] | None = None,
    engine: str = "vLLM",
) -> dict[str, Any]:
    """One `Server` role named `server` on the sample engine, behind the real `vllm-router` when `routed`."""
    role: dict[str, Any] = {
        "name": "server",
        "replicas": replicas,
        "image": build("sample-engine").reference,
        "imagePullPolicy": "Never",
        "shmSize": "64Mi",
    }
    optional = {
        "terminationGracePeriodSeconds": grace,
        "command": command,
        "extraArgs": extra_args,
        "env": [{"name": key, "value": value} for key, value in env.items()] if env else None,
    }
    role |= {key: value for key, value in optional.items() if value is not None}
    spec: dict[str, Any] = {"model": {"name": MODEL}, "engine": {"name": engine}, "roles": [role]}
    if routed:
        spec["router"] = {
            "name": "vllm-router",
            "image": build("vllm-router").reference,
            "imagePullPolicy": "Never",
        }
    if retirement:
        spec["retirement"] = retirement
    return {
        "apiVersion": labels.API_VERSION,
        "kind": labels.KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
