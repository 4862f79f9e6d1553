"""Which Pods are the router of a deployment. Labels alone say nothing: anybody who may create a Pod may write them.

A router Pod is owned by a ReplicaSet, that by the router's Deployment, and that by the ModelDeployment; each link names
a UID. What a UID owns never changes, so each link is read once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from controller.cluster.client import Client
from controller.cluster.reads import get
from controller.cluster.resources import DEPLOYMENTS, REPLICA_SETS, Resource
from controller.snapshot import PodView


class Routers(NamedTuple):
    """Router Pods by what is known of their owner."""

    ours: tuple[PodView, ...]
    unplaced: tuple[PodView, ...]
    """Their ReplicaSet or Deployment is gone. They are asked, since an answer can hold a replica; that there are
    some is no reason to trust that a router stands before the replicas."""


class RouterOwnership:
    """Follows owner references from Pods up to ModelDeployments, remembering what it has read."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._owner: dict[str, Mapping[str, Any] | None] = {}
        """UID of a ReplicaSet or Deployment -> the reference to its controller, None when it has none."""

    async def sort(self, candidates: Sequence[PodView], *, deployment_uid: str) -> Routers:
        """Which of `candidates` are the deployment's routers. Raises ApiError or NoAnswerError."""
        places = [await self._is_ours(pod, deployment_uid) for pod in candidates]
        return Routers(
            ours=tuple(pod for pod, place in zip(candidates, places, strict=True) if place),
            unplaced=tuple(pod for pod, place in zip(candidates, places, strict=True) if place is None),
        )

    async def _is_ours(self, pod: PodView, deployment_uid: str) -> bool | None:
        """None when a link of the chain is gone and was never read."""
        reference = pod.controller
        for kind, resource in (("ReplicaSet", REPLICA_SETS), ("Deployment", DEPLOYMENTS)):
            if reference is None or reference.get("kind") != kind:
                return False
            uid = str(reference.get("uid"))
            if uid not in self._owner and not await self._read(pod.namespace, resource, reference):
                return None
            reference = self._owner[uid]
        return reference is not None and reference.get("uid") == deployment_uid

    async def _read(self, namespace: str, resource: Resource, reference: Mapping[str, Any]) -> bool:
        """Read one link; False when the object of that UID is gone."""
        found = await get(self._client, resource.path(namespace=namespace, name=str(reference.get("name"))))
        if found is None or found["metadata"]["uid"] != reference.get("uid"):
            return False
        owners = found["metadata"].get("ownerReferences") or ()
        self._owner[found["metadata"]["uid"]] = next((o for o in owners if o.get("controller")), None)
        return True
