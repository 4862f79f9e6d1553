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


def routed(
    *roles: dict[str, Any],
    engine: dict[str, Any] | None = None,
    retirement: dict[str, Any] | None = None,
    **router: Any,
) -> dict[str, Any]:
    """A valid object with a router, and with these roles if there are any."""
    given = list(roles) or [role()]
    return deployment(
        engine=engine or {"name": "vLLM"},
        router={"name": "vllm-router", "image": "router:1"} | router,
        retirement=retirement or {},
        roles=given,
        entryRole=given[0]["name"],
    )


def own_engine(**metrics: Any) -> dict[str, Any]:
    """A valid object with an engine that Ebb does not know, and where it publishes its figures."""
    return deployment(engine={"name": "Custom", "metrics": metrics}, roles=[role(command=["serve"])])
