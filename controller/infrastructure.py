"""The objects around the replicas: Services, and a router's Deployment with what it needs to read Pods.

They are aligned, never recreated. Services and Deployments are watched, so a hand's edit is put right at once; the
rest is compared when the render changes, and when the process starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

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
from controller.pod_renderer.problems import Problem
from controller.pod_renderer.router import render_router
from controller.pod_renderer.services import render_services

RESOURCES: Final = {
    resource.kind: resource
    for resource in (SERVICES, DEPLOYMENTS, SERVICE_ACCOUNTS, CONFIG_MAPS, ROLES, ROLE_BINDINGS)
}
WATCHED: Final = frozenset({SERVICES.kind, DEPLOYMENTS.kind})


class Holder(Enum):
    """Who has the name of an object that is rendered."""

    OURSELVES = "ourselves"
    PREDECESSOR = "predecessor"
    """A deployment of this name that is gone; the garbage collector will free the name."""
    STRANGER = "stranger"


class _Aligned(NamedTuple):
    """What an object was last brought to.

    The same render at the same generation is as near as it gets: a webhook, or a normal form of the server, may keep a
    difference open for good, and patching it would never end. Kinds that count no generations are always compared.
    """

    rendered: bytes
    generation: int | None


class Infrastructure:
    """Aligns what is rendered around a deployment. Raises ApiError or NoAnswerError for what should be tried again."""

    def __init__(self, *, client: Client, caches: Caches, writer: Writer) -> None:
        self._client = client
        self._caches = caches
        self._writer = writer
        self._aligned: dict[Key, dict[tuple[str, str], _Aligned]] = {}
        self._problems: dict[Key, tuple[Problem, ...]] = {}
        self._waiting: set[Key] = set()
        self._log = structlog.get_logger("infrastructure")

    def problems(self, key: Key) -> tuple[Problem, ...]:
        """About names that somebody else holds and about what the API server refused."""
        return self._problems.get(key, ())

    def unfinished(self, key: Key) -> bool:
        """Whether something is to be tried again though nothing that is watched changes."""
        return key in self._waiting or bool(self.problems(key))

    def forget(self, key: Key) -> None:
        self._aligned.pop(key, None)
        self._problems.pop(key, None)
        self._waiting.discard(key)

    async def align(self, owner: Owner, spec: ModelDeploymentSpec) -> None:
        key = (owner.namespace, owner.name)
        problems: list[Problem] = []
        self._waiting.discard(key)
        for wanted in [*render_services(owner, spec), *render_router(owner, spec)]:
            kind, name = wanted["kind"], wanted["metadata"]["name"]
            try:
                holder = await self._align_one(key, owner, wanted)
            except ApiError as error:
                if not error.definite or error.status in (409, 429):
                    raise
                problems.append(Problem(f"{kind} {name}", error.message))
                continue
            if holder is Holder.STRANGER:
                reason = f"a {kind} named {name} exists and belongs to somebody else"
                problems.append(Problem("metadata.name", reason))
            elif holder is Holder.PREDECESSOR:
                self._waiting.add(key)
        self._problems[key] = tuple(problems)
        await self._prune_router(key, owner, spec)

    async def _align_one(self, key: Key, owner: Owner, desired: Mapping[str, Any]) -> Holder:
        """Bring one object to its render, and say who holds its name."""
        kind, name = desired["kind"], desired["metadata"]["name"]
        resource = RESOURCES[kind]
        rendered = orjson.dumps(desired, option=orjson.OPT_SORT_KEYS)
        aligned = self._aligned.setdefault(key, {})
        before = aligned.get((kind, name))
        if kind in WATCHED:
            live = self._caches.find(resource, (owner.namespace, name))
        elif before is not None and before.rendered == rendered:
            return Holder.OURSELVES
        else:
            live = await self._get(resource, owner, name)
        if live is None:
            self._log.info("creating", kind=kind, name=name)
            live = await self._create(resource, owner, desired)
        holder = _holder_of(live, owner)
        if holder is not Holder.OURSELVES or live["metadata"].get("deletionTimestamp"):
            return holder
        generation = _generation(live)
        if generation is None or before != (rendered, generation):
            patch = patch_for(desired, live)
            if patch is not None:
                self._log.info("aligning", kind=kind, name=name, fields=sorted(patch))
                live = await self._writer.patch(
                    resource, patch, namespace=owner.namespace, name=name, uid=live["metadata"]["uid"]
                )
        aligned[(kind, name)] = _Aligned(rendered, _generation(live))
        return holder

    async def _create(
        self, resource: Resource, owner: Owner, desired: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """The object made, or the one that holds its name: our own that the cache has not seen, or a stranger's."""
        try:
            return await self._writer.create(resource, desired, namespace=owner.namespace)
        except ApiError as error:
            live = (
                await self._get(resource, owner, desired["metadata"]["name"])
                if error.already_exists
                else None
            )
            if live is None:
                raise
            return live

    async def _get(self, resource: Resource, owner: Owner, name: str) -> Mapping[str, Any] | None:
        return await get(self._client, resource.path(namespace=owner.namespace, name=name))

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


def _generation(live: Mapping[str, Any]) -> int | None:
    """Which edit of its spec an object has come to; None for kinds that do not count them."""
    found: int | None = live["metadata"].get("generation")
    return found


def _holder_of(live: Mapping[str, Any], owner: Owner) -> Holder:
    references = live["metadata"].get("ownerReferences") or ()
    if _owned_by(live, owner):
        return Holder.OURSELVES
    dead = any(
        reference.get("kind") == labels.KIND and reference.get("name") == owner.name
        for reference in references
    )
    return Holder.PREDECESSOR if dead else Holder.STRANGER


def _owned_by(live: Mapping[str, Any], owner: Owner) -> bool:
    references = live["metadata"].get("ownerReferences") or ()
    return any(reference.get("uid") == owner.uid for reference in references)
