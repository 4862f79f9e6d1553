"""The objects around the replicas: Services, and a router's Deployment with what it needs to read Pods.

They are aligned, never recreated. Services and Deployments are watched, so a hand's edit is put right at once; the
rest is compared when the render changes, and when the process starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson
import structlog

from apis.v1alpha1 import labels
from apis.v1alpha1.model_deployment import ModelDeploymentSpec
from controller.alignment import patch_for
from controller.caches import Caches, Key
from controller.cluster.client import ApiError, Client
from controller.cluster.reads import get
from controller.cluster.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from controller.cluster.writes import Writer
from controller.pod_renderer.owner import Owner
from controller.pod_renderer.router import render_router
from controller.pod_renderer.services import render_services

RESOURCES: Final = {
    resource.kind: resource
    for resource in (SERVICES, DEPLOYMENTS, SERVICE_ACCOUNTS, CONFIG_MAPS, ROLES, ROLE_BINDINGS)
}
WATCHED: Final = frozenset({SERVICES.kind, DEPLOYMENTS.kind})


class Infrastructure:
    """Aligns what is rendered around a deployment. Raises ApiError or NoAnswerError for what should be tried again."""

    def __init__(self, *, client: Client, caches: Caches, writer: Writer) -> None:
        self._client = client
        self._caches = caches
        self._writer = writer
        self._aligned: dict[Key, dict[tuple[str, str], bytes]] = {}
        self._problems: dict[Key, tuple[str, ...]] = {}
        self._log = structlog.get_logger("infrastructure")

    def problems(self, key: Key) -> tuple[str, ...]:
        """Sentences about names that somebody else holds and about what the API server refused."""
        return self._problems.get(key, ())

    def forget(self, key: Key) -> None:
        self._aligned.pop(key, None)
        self._problems.pop(key, None)

    async def align(self, owner: Owner, spec: ModelDeploymentSpec) -> None:
        key = (owner.namespace, owner.name)
        problems: list[str] = []
        desired = [*render_services(owner, spec), *render_router(owner, spec)]
        for wanted in desired:
            try:
                problem = await self._align_one(key, owner, wanted)
            except ApiError as error:
                if not error.definite or error.status in (409, 429):
                    raise
                problem = f"{wanted['kind']} {wanted['metadata']['name']}: {error.message}"
            if problem:
                problems.append(problem)
        self._problems[key] = tuple(problems)
        await self._prune_router(key, owner, spec)

    async def _align_one(self, key: Key, owner: Owner, desired: Mapping[str, Any]) -> str:
        kind, name = desired["kind"], desired["metadata"]["name"]
        resource = RESOURCES[kind]
        rendered = orjson.dumps(desired, option=orjson.OPT_SORT_KEYS)
        aligned = self._aligned.setdefault(key, {})
        if kind in WATCHED:
            live = self._caches.find(resource, (owner.namespace, name))
        elif aligned.get((kind, name)) == rendered:
            return ""
        else:
            live = await get(self._client, resource.path(namespace=owner.namespace, name=name))
        if live is None:
            self._log.info("creating", kind=kind, name=name)
            await self._create(resource, owner, desired)
        elif not _owned_by(live, owner):
            return f"metadata.name: a {kind} named {name} exists and belongs to somebody else"
        elif live["metadata"].get("deletionTimestamp"):
            return ""
        else:
            patch = patch_for(desired, live)
            if (
                kind == DEPLOYMENTS.kind
                and aligned.get((kind, name)) == rendered
                and not _edited(desired, live)
            ):
                # Defaults and normal forms of a Pod template differ from any render; only edits count.
                patch = None
            if patch is not None:
                self._log.info("aligning", kind=kind, name=name, fields=sorted(patch))
                await self._writer.patch(
                    resource, patch, namespace=owner.namespace, name=name, uid=live["metadata"]["uid"]
                )
        aligned[(kind, name)] = rendered
        return ""

    async def _create(self, resource: Resource, owner: Owner, desired: Mapping[str, Any]) -> None:
        try:
            await self._writer.create(resource, desired, namespace=owner.namespace)
        except ApiError as error:
            # Made already, and the cache has not seen it; or somebody else's without our labels: the next pass tells.
            if error.status != 409:
                raise
            live = await get(
                self._client, resource.path(namespace=owner.namespace, name=desired["metadata"]["name"])
            )
            if live is not None and not _owned_by(live, owner):
                raise ApiError(
                    status=422,
                    reason="Invalid",
                    message="metadata.name: the name is taken by an object that belongs to somebody else",
                ) from error

    async def _prune_router(self, key: Key, owner: Owner, spec: ModelDeploymentSpec) -> None:
        """A router that the spec no longer names goes; its own grace lets its streams end."""
        if spec.router is not None:
            return
        for kind, resource in ((DEPLOYMENTS.kind, DEPLOYMENTS), (SERVICES.kind, SERVICES)):
            for live in self._caches.parts(resource, key):
                metadata = live["metadata"]
                is_router = (metadata.get("labels") or {}).get(labels.COMPONENT) == labels.ROUTER_COMPONENT
                if is_router and _owned_by(live, owner) and not metadata.get("deletionTimestamp"):
                    self._log.info("pruning", kind=kind, name=metadata["name"])
                    await self._writer.delete(
                        resource, namespace=owner.namespace, name=metadata["name"], uid=metadata["uid"]
                    )


def _edited(desired: Mapping[str, Any], live: Mapping[str, Any]) -> bool:
    """Whether somebody changed what a router must not lose: its number of Pods or which Pods are its own."""
    wanted, found = desired["spec"], live.get("spec") or {}
    return any(wanted.get(field) != found.get(field) for field in ("replicas", "selector"))


def _owned_by(live: Mapping[str, Any], owner: Owner) -> bool:
    references = live["metadata"].get("ownerReferences") or ()
    return any(reference.get("uid") == owner.uid for reference in references)
