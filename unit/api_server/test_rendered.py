"""A real API server takes what is rendered, and gives it back without a difference that would be patched again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from apis.v1alpha1.model_deployment import ModelDeploymentSpec
from controller.alignment import patch_for
from controller.cluster.client import Client
from controller.cluster.resources import (
    DEPLOYMENTS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from controller.pod_renderer.owner import Owner
from controller.pod_renderer.pod import render_pod
from controller.pod_renderer.router import render_router
from controller.pod_renderer.services import render_services
from unit.api_server.objects import NAMESPACE

pytestmark = pytest.mark.control_plane

GOLDEN: Final = Path(__file__).parents[1] / "pod_renderer" / "golden"
OWNER: Final = Owner("chat", NAMESPACE, "5d1c0e8e-0000-4000-8000-000000000001")
KINDS: Final = {
    resource.kind: resource
    for resource in (PODS, SERVICES, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS, DEPLOYMENTS)
}
CLASSES: Final = ("priorityClassName", "runtimeClassName")
"""Names of objects that an empty cluster does not have; the API server looks them up."""


def resource_of(rendered: dict[str, Any]) -> Resource:
    resource = KINDS[rendered["kind"]]
    assert resource.api_version == rendered["apiVersion"]
    return resource


def golden(pattern: str) -> list[Any]:
    return [
        pytest.param(yaml.safe_load(path.read_text(encoding="utf-8")), id=path.stem)
        for path in sorted(GOLDEN.glob(pattern))
    ]


def spec_of(case: dict[str, Any]) -> ModelDeploymentSpec:
    raw = case["spec"]
    roles = [{key: value for key, value in role.items() if key not in CLASSES} for role in raw["roles"]]
    return ModelDeploymentSpec.model_validate(raw | {"roles": roles})


async def create(client: Client, rendered: dict[str, Any], query: dict[str, str]) -> dict[str, Any]:
    path = resource_of(rendered).path(namespace=NAMESPACE)
    answer = await client.request("POST", path, query=query | {"fieldValidation": "Strict"}, body=rendered)
    return dict(answer.body)


@pytest.mark.parametrize("case", golden("pod_*.yaml"))
async def test_pods_are_valid(client: Client, case: dict[str, Any]) -> None:
    """Every rendered Pod is one that the API server takes, with no field that it does not know."""
    spec = spec_of(case)
    pod = render_pod(OWNER, spec, spec.roles[0], ordinal=case["ordinal"])
    stored = await create(client, pod, {"dryRun": "All"})
    assert stored["metadata"]["labels"] == pod["metadata"]["labels"]


@pytest.mark.parametrize("case", golden("objects_*.yaml"))
async def test_objects_read_back_as_they_were_written(client: Client, case: dict[str, Any]) -> None:
    """Services and the router's objects are taken, and what is stored needs no patch: a settled cluster stays quiet."""
    spec = spec_of(case)
    for rendered in [*render_services(OWNER, spec), *render_router(OWNER, spec)]:
        stored = await create(client, rendered, {})
        await client.request(
            "DELETE", resource_of(rendered).path(namespace=NAMESPACE, name=rendered["metadata"]["name"])
        )
        assert patch_for(rendered, stored) is None, rendered["kind"]
