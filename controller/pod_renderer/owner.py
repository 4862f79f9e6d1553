"""Whose objects are rendered, and what they are called. Every generated name is made here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from apis.v1alpha1 import labels


@dataclass(frozen=True, slots=True)
class Owner:
    """A ModelDeployment as its objects refer to it."""

    name: str
    namespace: str
    uid: str

    def pod_name(self, role: str, ordinal: int, member: int = 0) -> str:
        """Fixed per seat, so that creating a seat twice is a conflict and not a second Pod."""
        return f"{self.name}-{role}-r{ordinal}-m{member}"

    def role_service_name(self, role: str) -> str:
        return f"{self.name}-{role}"

    @property
    def router_name(self) -> str:
        return f"{self.name}-{labels.ROUTER_COMPONENT}"

    def metadata(self, name: str, object_labels: dict[str, str]) -> dict[str, Any]:
        """Name, labels and the owner reference; deleting the owner is not held up by the object."""
        return {
            "name": name,
            "namespace": self.namespace,
            "labels": object_labels,
            "ownerReferences": [
                {
                    "apiVersion": labels.API_VERSION,
                    "kind": labels.KIND,
                    "name": self.name,
                    "uid": self.uid,
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        }
