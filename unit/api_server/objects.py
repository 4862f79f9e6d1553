"""ModelDeployments as a user would write them, as short as a case needs."""

from __future__ import annotations

from typing import Any, Final

from apis.v1alpha1 import labels

NAMESPACE: Final = "default"


def role(**fields: Any) -> dict[str, Any]:
    return {"name": "server", "image": "engine:1"} | fields


def deployment(*, name: str = "chat", **spec: Any) -> dict[str, Any]:
    """A valid object with these fields of the spec in the place of its own."""
    return {
        "apiVersion": labels.API_VERSION,
        "kind": labels.KIND,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"model": {"name": "tiny"}, "engine": {"name": "vLLM"}, "roles": [role()]} | spec,
    }


def with_role(**fields: Any) -> dict[str, Any]:
    """A valid object whose only role has these fields."""
    return deployment(roles=[role(**fields)])


def routed(*roles: dict[str, Any], **router: Any) -> dict[str, Any]:
    """A valid object with a router, and with these roles if there are any."""
    given = list(roles) or [role()]
    return deployment(
        router={"name": "vllm-router", "image": "router:1"} | router, roles=given, entryRole=given[0]["name"]
    )
