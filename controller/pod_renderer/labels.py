"""Labels of Pods and Services, and the selectors that find them again."""

from __future__ import annotations

from apis.v1alpha1 import labels
from apis.v1alpha1.role import Role
from controller.pod_renderer.owner import Owner


def identity(owner: Owner, component: str | None = None) -> dict[str, str]:
    """What says whose an object is: the deployment, and with `component` the role (or the router)."""
    own = {labels.NAME: labels.EBB, labels.INSTANCE: owner.name, labels.MANAGED_BY: labels.EBB}
    return own if component is None else own | {labels.COMPONENT: component}


def seat_labels(owner: Owner, role: Role, *, ordinal: int, member: int) -> dict[str, str]:
    """Labels of a Pod that the hash covers: the user's, the identity and the seat. Ours win over the user's."""
    return {
        **(role.pod_labels or {}),
        **identity(owner, role.name),
        labels.ROLE_KIND: role.kind.value,
        labels.REPLICA: str(ordinal),
        labels.MEMBER: str(member),
        labels.REPLICA_SIZE: str(role.size),
    }


def eligible(selector: dict[str, str]) -> dict[str, str]:
    """Narrow a selector to Pods that are offered to service."""
    return selector | {labels.ENDPOINT_ELIGIBLE: "true"}
