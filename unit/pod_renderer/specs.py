"""Specs as short as a test needs them, and the objects that are rendered from them."""

from __future__ import annotations

from typing import Any, Final

from apis.v1alpha1.model_deployment import ModelDeploymentSpec
from controller.pod_renderer.owner import Owner
from controller.pod_renderer.pod import render_pod

OWNER: Final = Owner("chat", "models", "5d1c0e8e-0000-4000-8000-000000000001")


def spec(*, engine: str = "vLLM", router: dict[str, Any] | None = None, **role: Any) -> ModelDeploymentSpec:
    """One role `server` with these fields, in the API's spelling."""
    raw: dict[str, Any] = {
        "model": {"name": "tiny"},
        "engine": {"name": engine},
        "roles": [{"name": "server", "image": "engine:1"} | role],
    }
    if router is not None:
        raw["router"] = {"name": "vllm-router", "image": "router:1"} | router
    return ModelDeploymentSpec.model_validate(raw)


def pod(*, ordinal: int = 0, **fields: Any) -> dict[str, Any]:
    """The Pod of `spec(**fields)`."""
    wanted = spec(**fields)
    return render_pod(OWNER, wanted, wanted.roles[0], ordinal=ordinal)


def main(rendered: dict[str, Any]) -> dict[str, Any]:
    """The engine's container."""
    container: dict[str, Any] = rendered["spec"]["containers"][0]
    return container


def hook_command(rendered: dict[str, Any]) -> list[str]:
    command: list[str] = main(rendered)["lifecycle"]["preStop"]["exec"]["command"]
    return command
