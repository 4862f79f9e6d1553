"""What is done to Pods: created on their seats, labelled, deleted by UID. Each call is safe to repeat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import structlog

from apis.v1alpha1 import labels
from controller.cluster.client import ApiError
from controller.cluster.resources import PODS
from controller.cluster.writes import Writer
from controller.snapshot import PodView, Seat


class Pods:
    """Effects on the Pods of deployments, through one Writer."""

    def __init__(self, writer: Writer) -> None:
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
        self, seats: Sequence[Seat], *, namespace: str, render: Callable[[Seat], dict[str, Any]]
    ) -> tuple[str, ...]:
        """Fill seats; returns the API server's sentences for what it refused."""
        refused: dict[str, None] = {}
        for seat in seats:
            try:
                await self._writer.create(PODS, render(seat), namespace=namespace)
            except ApiError as error:
                if error.status == 409:
                    # The name is held by a Pod that is leaving, or by one that the cache has not seen yet.
                    continue
                if not error.definite or error.status == 429:
                    raise
                refused.setdefault(f"{seat.role}/{seat.ordinal}: {error.message}")
        return tuple(refused)

    async def _label(self, pod: PodView, value: str | None) -> None:
        await self._writer.patch(
            PODS,
            {"metadata": {"labels": {labels.ENDPOINT_ELIGIBLE: value}}},
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
        )
