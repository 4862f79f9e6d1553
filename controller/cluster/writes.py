"""Every write that the controller makes, in the one form in which each is safe to make.

Deletes carry the UID that was decided on and never a grace period; patches carry the UID; a status is
replaced at the version that was read. What the API server answers is applied to the informers at once, so
that the next pass does not decide on what this one has already changed. Nothing is repeated here: who failed
decides again, on what is true then.

Before each write the fence is asked for how long this process may still act; no write waits longer than that.

All methods return the object as the API server answered it and raise ApiError or NoAnswerError, or what the fence
raises.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from controller.cluster.client import Client
from controller.cluster.resources import PODS, Resource

MERGE_PATCH: Final = "application/merge-patch+json"

WRITE_SECONDS: Final = 10.0
"""How long the answer to a write is waited for."""

Applied = Callable[[Resource, dict[str, Any]], None]

Fence = Callable[[], float]
"""Seconds for which this process may still act; raises when there are none."""


def unfenced() -> float:
    """The fence of a process that needs nobody's leave."""
    return math.inf


class Writer:
    """Writes through a Client; `applied(resource, object)` is told the outcome of each success."""

    def __init__(self, client: Client, *, applied: Applied, fence: Fence = unfenced) -> None:
        self._client = client
        self._applied = applied
        self._fence = fence

    async def create(self, resource: Resource, body: Mapping[str, Any], *, namespace: str) -> dict[str, Any]:
        """Create an object. 409 AlreadyExists: somebody has the name, perhaps our own earlier attempt."""
        return await self._write("POST", resource, resource.path(namespace=namespace), body=body)

    async def patch(
        self,
        resource: Resource,
        patch: Mapping[str, Any],
        *,
        namespace: str,
        name: str,
        uid: str,
        resource_version: str | None = None,
    ) -> dict[str, Any]:
        """Merge `patch` into the object that has this UID, and only at this version when one is given.

        The UID stands in the patch, where it cannot be changed: another object of the same name refuses it
        (422). A version that has passed refuses with 409.
        """
        identity = {"uid": uid} | ({"resourceVersion": resource_version} if resource_version else {})
        metadata = {**(patch.get("metadata") or {}), **identity}
        return await self._write(
            "PATCH",
            resource,
            resource.path(namespace=namespace, name=name),
            body={**patch, "metadata": metadata},
            content_type=MERGE_PATCH,
        )

    async def replace(self, resource: Resource, body: Mapping[str, Any]) -> dict[str, Any]:
        """Replace a whole object at the version in its metadata."""
        return await self._replace(resource, body, subresource="")

    async def replace_status(self, resource: Resource, body: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the status of an object at the version in its metadata; 409 when it was written since."""
        return await self._replace(resource, body, subresource="status")

    async def delete_pod(
        self, *, namespace: str, name: str, uid: str, resource_version: str | None = None
    ) -> dict[str, Any]:
        """Delete the Pod that has this UID, with the grace it was created with.

        409 Conflict: the name belongs to another Pod now, or the Pod changed since `resource_version`.
        """
        return await self.delete(
            PODS, namespace=namespace, name=name, uid=uid, resource_version=resource_version
        )

    async def delete(
        self, resource: Resource, *, namespace: str, name: str, uid: str, resource_version: str | None = None
    ) -> dict[str, Any]:
        """Delete the object that has this UID. An object that lingers (grace, finalizers) is answered as it is now."""
        preconditions = {"uid": uid} | ({"resourceVersion": resource_version} if resource_version else {})
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        return await self._write("DELETE", resource, resource.path(namespace=namespace, name=name), body=body)

    async def _replace(
        self, resource: Resource, body: Mapping[str, Any], *, subresource: str
    ) -> dict[str, Any]:
        metadata = body["metadata"]
        if not metadata.get("resourceVersion") or not metadata.get("uid"):
            raise ValueError(
                f"{resource.kind} {metadata.get('name')}: replaced without the version or UID that was read"
            )
        path = resource.path(namespace=metadata["namespace"], name=metadata["name"], subresource=subresource)
        return await self._write("PUT", resource, path, body=body)

    async def _write(
        self, method: str, resource: Resource, path: str, *, body: Any, content_type: str = "application/json"
    ) -> dict[str, Any]:
        timeout = min(WRITE_SECONDS, self._fence())
        answer = await self._client.request(
            method, path, body=body, content_type=content_type, timeout=timeout
        )
        found: dict[str, Any] = answer.body
        # A finished delete is answered with a Status, which is no object to remember.
        if found.get("kind") == resource.kind:
            found["metadata"].pop("managedFields", None)
            self._applied(resource, found)
        return found
