"""What is done to Pods: created on their seats, labelled, deleted by UID. Each call is safe to repeat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import structlog

from apis.v1alpha1 import labels
from controller.cluster.client import ApiError, Client
from controller.cluster.reads import get_pod
from controller.cluster.resources import PODS
from controller.cluster.writes import Writer
from controller.pod_renderer.owner import Owner
from controller.snapshot import PodView, Seat


class Pods:
    """Effects on the Pods of deployments, through one Writer."""

    def __init__(self, *, client: Client, writer: Writer) -> None:
        self._client = client
        self._writer = writer
        self._log = structlog.get_logger("pods")

    async def offer(self, pod: PodView) -> None:
        """Put the eligibility label on: Services and routers may select the Pod."""
        await self._label(pod, "true")

    async def withhold(self, pod: PodView) -> None:
        """Take the eligibility label off."""
        await self._label(pod, None)

    async def delete(self, *, namespace: str, name: str, uid: str) -> None:
        await self._writer.delete_pod(namespace=namespace, name=name, uid=uid)

    async def give_way(self, pod: PodView) -> None:
        """Delete a Pod for its successor, with the grace it was created with; one that is gone already is no error.

        One that was judged not to be Ready is deleted at that very version: if it serves by now, it is judged again.
        """
        try:
            await self._writer.delete_pod(
                namespace=pod.namespace,
                name=pod.name,
                uid=pod.uid,
                resource_version=None if pod.ready else pod.resource_version,
            )
        except ApiError as error:
            if not error.not_found:
                raise

    async def clean_up(self, pods: Sequence[PodView], why: str) -> None:
        """Delete what serves nothing, at the very version that was judged: one that was bound or started meanwhile
        refuses with a conflict and is judged again."""
        for pod in pods:
            if not pod.terminating:
                self._log.info("cleaning up", pod=pod.name, why=why)
                await self._writer.delete_pod(
                    namespace=pod.namespace,
                    name=pod.name,
                    uid=pod.uid,
                    resource_version=pod.resource_version,
                )

    async def create(
        self, seats: Sequence[Seat], *, owner: Owner, render: Callable[[Seat], dict[str, Any]]
    ) -> tuple[str, ...]:
        """Fill seats; returns sentences for those that cannot be filled, mostly the API server's own."""
        refused: dict[str, None] = {}
        for seat in seats:
            pod = render(seat)
            try:
                await self._writer.create(PODS, pod, namespace=owner.namespace)
            except ApiError as error:
                reason = error.message
                if error.already_exists:
                    reason = await self._why_taken(owner, pod["metadata"]["name"])
                if reason:
                    refused.setdefault(f"{seat.role}/{seat.ordinal}: {reason}")
                if not error.definite or error.status == 429:
                    # A webhook that fails, or a server that is overloaded, would say the same about every other seat.
                    break
        return tuple(refused)

    async def _why_taken(self, owner: Owner, name: str) -> str:
        """Empty when the Pod of that name is leaving, or is ours and the cache has not seen it yet."""
        holder = await get_pod(self._client, namespace=owner.namespace, name=name)
        if holder is None or holder.terminating or holder.owner_uid == owner.uid:
            return ""
        return f"a Pod named {name} exists and belongs to somebody else"

    async def _label(self, pod: PodView, value: str | None) -> None:
        await self._writer.patch(
            PODS,
            {"metadata": {"labels": {labels.ENDPOINT_ELIGIBLE: value}}},
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
        )
