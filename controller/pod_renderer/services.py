"""The Services of a deployment: one per role, and `<deployment>` in front of the entry role."""

from __future__ import annotations

from typing import Any

from apis.v1alpha1.model_deployment import ModelDeploymentSpec
from apis.v1alpha1.role import Role
from controller.pod_renderer import argv
from controller.pod_renderer.labels import eligible, identity
from controller.pod_renderer.owner import Owner
from controller.pod_renderer.router import API_PORT


def render_services(owner: Owner, spec: ModelDeploymentSpec) -> list[dict[str, Any]]:
    """`<deployment>` first, then `<deployment>-<role>` in spec order."""
    return [front_service(owner, spec.entry), *(role_service(owner, role) for role in spec.roles)]


def front_service(owner: Owner, role: Role) -> dict[str, Any]:
    """`<deployment>`, pointed at a role: the entry role, or the one that still serves in its place."""
    return _service(owner, owner.name, role, identity(owner))


def role_service(owner: Owner, role: Role) -> dict[str, Any]:
    """`<deployment>-<role>`."""
    return _service(owner, owner.role_service_name(role.name), role, identity(owner, role.name))


def endpoint(owner: Owner, spec: ModelDeploymentSpec, *, router_ready: bool) -> str:
    """The URL for clients: the router's once it is ready, else `<deployment>`'s."""
    if spec.router is not None and router_ready:
        return f"http://{owner.router_name}.{owner.namespace}.svc:{API_PORT}"
    where = argv.listener(spec.entry)
    return f"{where.scheme}://{owner.name}.{owner.namespace}.svc:{where.port}"


def _service(owner: Owner, name: str, role: Role, own_labels: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owner.metadata(name, own_labels),
        "spec": {
            "type": "ClusterIP",
            "selector": eligible(identity(owner, role.name)),
            "ports": [
                {
                    "name": port.name,
                    "port": port.port,
                    "protocol": port.protocol.value,
                    "targetPort": port.port,
                }
                for port in role.ports
            ],
        },
    }
