"""What one pass looks at: an immutable picture of a deployment, and thin typed views over raw Kubernetes objects.

Objects stay the dicts that the API server sent, shared with the store and therefore never changed; a view reads only
what a planner asks, when it asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from apis.v1alpha1 import labels
from controller.clock import parse_time

Raw = Mapping[str, Any]


class Seat(NamedTuple):
    """Where a Pod sits: one member of one replica of one role."""

    role: str
    ordinal: int
    member: int


class Identity(NamedTuple):
    """Everything that must stay the same around a reading for it to speak of this very container."""

    uid: str
    owner_uid: str
    container_id: str
    restart_count: int
    running: bool
    ip: str
    scrape: tuple[str, str, str]
    role: str


@dataclass(frozen=True, slots=True)
class PodView:
    """A Pod of ours as the API server sent it."""

    raw: Raw

    @property
    def metadata(self) -> Raw:
        found: Raw = self.raw.get("metadata") or {}
        return found

    @property
    def name(self) -> str:
        return str(self.metadata.get("name", ""))

    @property
    def namespace(self) -> str:
        return str(self.metadata.get("namespace", ""))

    @property
    def uid(self) -> str:
        return str(self.metadata.get("uid", ""))

    @property
    def resource_version(self) -> str:
        return str(self.metadata.get("resourceVersion", ""))

    @property
    def labels(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self.metadata.get("labels") or {}
        return found

    @property
    def annotations(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self.metadata.get("annotations") or {}
        return found

    @property
    def controller(self) -> Raw | None:
        """The reference to the object that controls the Pod, None when nothing does."""
        owners = self.metadata.get("ownerReferences") or ()
        return next((owner for owner in owners if owner.get("controller")), None)

    @property
    def owner_uid(self) -> str:
        """UID of the controlling ModelDeployment, "" when something else (or nothing) owns the Pod."""
        owner = self.controller or {}
        group = str(owner.get("apiVersion", "")).partition("/")[0]
        return str(owner.get("uid", "")) if owner.get("kind") == labels.KIND and group == labels.GROUP else ""

    @property
    def role(self) -> str:
        return self.labels.get(labels.COMPONENT, "")

    @property
    def seat(self) -> Seat | None:
        """The seat that the labels name, None unless role, ordinal and member are all readable."""
        ordinal, member = _ordinal(self.labels.get(labels.REPLICA)), _ordinal(self.labels.get(labels.MEMBER))
        if not self.role or ordinal is None or member is None:
            return None
        return Seat(self.role, ordinal, member)

    @property
    def replica_size(self) -> int | None:
        """How many members the replica was built with; None when the label is absent or unreadable, never 1."""
        size = _ordinal(self.labels.get(labels.REPLICA_SIZE))
        return size if size else None

    @property
    def eligible_label(self) -> bool:
        return self.labels.get(labels.ENDPOINT_ELIGIBLE) == "true"

    @property
    def deletion_timestamp(self) -> datetime | None:
        stamp = self.metadata.get("deletionTimestamp")
        return parse_time(stamp) if stamp else None

    @property
    def deletion_grace_seconds(self) -> int | None:
        grace = self.metadata.get("deletionGracePeriodSeconds")
        return None if grace is None else int(grace)

    @property
    def terminating(self) -> bool:
        return bool(self.metadata.get("deletionTimestamp"))

    @property
    def spec(self) -> Raw:
        found: Raw = self.raw.get("spec") or {}
        return found

    @property
    def status(self) -> Raw:
        found: Raw = self.raw.get("status") or {}
        return found

    @property
    def phase(self) -> str:
        return str(self.status.get("phase", ""))

    @property
    def node(self) -> str:
        return str(self.spec.get("nodeName", ""))

    @property
    def ip(self) -> str:
        return str(self.status.get("podIP", ""))

    @property
    def ready(self) -> bool:
        """Condition Ready is True. A Pod without the condition yet is not Ready."""
        return any(
            condition.get("type") == "Ready" and condition.get("status") == "True"
            for condition in self.status.get("conditions") or ()
        )

    @property
    def terminal(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def main(self) -> Raw | None:
        """The container spec of the engine, None when the Pod has none of that name."""
        return next(
            (c for c in self.spec.get("containers") or () if c.get("name") == labels.MAIN_CONTAINER), None
        )

    @property
    def main_status(self) -> Raw | None:
        return next(
            (c for c in self.status.get("containerStatuses") or () if c.get("name") == labels.MAIN_CONTAINER),
            None,
        )

    @property
    def identity(self) -> Identity:
        status = self.main_status or {}
        notes = self.annotations
        return Identity(
            uid=self.uid,
            owner_uid=self.owner_uid,
            container_id=str(status.get("containerID") or ""),
            restart_count=int(status.get("restartCount") or 0),
            running="running" in (status.get("state") or {}),
            ip=self.ip,
            scrape=(
                notes.get(labels.SCRAPE_SCHEME, ""),
                notes.get(labels.SCRAPE_PORT, ""),
                notes.get(labels.SCRAPE_PATH, ""),
            ),
            role=self.role,
        )

    @property
    def ever_ran(self) -> bool:
        """Whether the engine container ever had an ID, a last state or a restart, or the Pod was Ready."""
        status = self.main_status or {}
        return bool(
            status.get("containerID") or status.get("lastState") or status.get("restartCount") or self.ready
        )


def by_ordinal(pods: Sequence[PodView], role: str) -> dict[int, list[PodView]]:
    """The Pods of one role grouped into replicas; Pods without a readable seat are left out."""
    replicas: dict[int, list[PodView]] = {}
    for pod in pods:
        seat = pod.seat
        if seat is not None and seat.role == role:
            replicas.setdefault(seat.ordinal, []).append(pod)
    return replicas


def _ordinal(text: str | None) -> int | None:
    """A non-negative decimal number written plainly, or None."""
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


@dataclass(frozen=True, slots=True)
class DeploymentView:
    """A ModelDeployment as the API server sent it; its spec is parsed elsewhere, and only when it is needed."""

    raw: Raw

    @property
    def metadata(self) -> Raw:
        found: Raw = self.raw["metadata"]
        return found

    @property
    def name(self) -> str:
        return str(self.metadata["name"])

    @property
    def namespace(self) -> str:
        return str(self.metadata["namespace"])

    @property
    def uid(self) -> str:
        return str(self.metadata["uid"])

    @property
    def generation(self) -> int:
        return int(self.metadata.get("generation", 0))

    @property
    def resource_version(self) -> str:
        return str(self.metadata.get("resourceVersion", ""))

    @property
    def terminating(self) -> bool:
        return bool(self.metadata.get("deletionTimestamp"))

    @property
    def finalizers(self) -> Sequence[str]:
        found: Sequence[str] = self.metadata.get("finalizers") or ()
        return found

    def reason_of(self, condition: str) -> str:
        """The reason that a condition of the status has now, "" when there is no such condition."""
        conditions: Sequence[Raw] = self.status.get("conditions") or ()
        return next((str(c.get("reason")) for c in conditions if c.get("type") == condition), "")

    @property
    def roles(self) -> Mapping[str, tuple[str, int]]:
        """Role -> (kind, replicas) as declared, also by a spec that cannot be rendered."""
        return {
            role["name"]: (role.get("kind", "Server"), role.get("replicas", 1))
            for role in self.raw["spec"].get("roles") or ()
        }

    @property
    def paused(self) -> bool:
        annotations: Mapping[str, str] = self.metadata.get("annotations") or {}
        return annotations.get(labels.PAUSED) == "true"

    @property
    def status(self) -> Raw:
        found: Raw = self.raw.get("status") or {}
        return found
