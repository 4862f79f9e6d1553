"""The status of a `ModelDeployment`: what the controller tells, and what it must not forget.

Every object keeps fields that it does not know, so that a controller of an older release carries on what a
newer one wrote. Counts are replicas. What is unknown is absent; a zero was observed. Nothing here has a
default: the API server would add it, and the controller would find its own status changed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field

from apis.v1alpha1.base import PRESERVE, ApiModel, Time, map_list


class StatusModel(ApiModel):
    """A part of the status."""

    model_config = ConfigDict(extra="allow", json_schema_extra={PRESERVE: True})


class Phase(StrEnum):
    STARTING = "Starting"
    READY = "Ready"
    DEGRADED = "Degraded"
    DELETING = "Deleting"


class RetirementState(StrEnum):
    ADMITTED = "Admitted"
    DISQUALIFIED = "Disqualified"
    WITHDRAWING = "Withdrawing"
    DRAINING = "Draining"
    DELETING = "Deleting"
    SETTLING = "Settling"
    COMPLETED = "Completed"
    ABORTED = "Aborted"


class RetirementCause(StrEnum):
    REPLICAS_REDUCED = "ReplicasReduced"
    SURPLUS = "Surplus"
    ROLE_REMOVED = "RoleRemoved"


class RolloutPhase(StrEnum):
    LEAVING = "Leaving"
    """Its Pods are being deleted, or are about to be."""
    STARTING = "Starting"
    """They are gone; the successor is not Ready yet."""


Count = Annotated[int, Field(ge=0)]


class RoleStatus(StatusModel):
    """The replicas of one role."""

    name: str
    """The role."""
    kind: str
    """What its replicas do."""
    desired: Count
    """What the spec declares; 0 for a role that was dropped and still has Pods."""
    ready: Count | None = None
    """Replicas of which every member is Ready."""
    updated: Count | None = None
    """Replicas that run what the spec says now."""
    unmanaged: Count | None = None
    """Live Pods of the role without a valid seat."""


class RouterStatus(StatusModel):
    """The Pods of the router."""

    desired: Count
    """What the spec declares."""
    ready: Count | None = None
    """Pods that are Ready."""


class TargetMember(StatusModel):
    """A Pod of the replica that leaves, and the process in it, as they were at admission."""

    uid: str
    """Of the Pod: a later one of the same name is another."""
    name: str
    """Of the Pod."""
    container_id: Annotated[str | None, Field(alias="containerID")] = None
    """Of the engine's container; absent when none ran."""
    restart_count: Count | None = None
    """Of the engine's container: after another restart its figures are those of another process."""


class RetirementPolicy(StatusModel):
    """`spec.retirement` as it was at admission."""

    without_router: str
    """What stands for a router's evidence where there is none."""
    withdraw_seconds: int
    """From admission until the replica is known to be selected no more."""
    drain_seconds: int
    """For the requests in flight."""
    settle_seconds: int
    """For the capacity to be given back."""
    total_seconds: int
    """For the whole operation."""


class RetirementStatus(StatusModel):
    """The one running retirement: which replica leaves, how far it is, and on what evidence."""

    role_name: str
    """The role of the replica."""
    replica_ordinal: Count | None = None
    """Which replica of the role. Absent only for a Pod without a seat."""
    cause: RetirementCause
    """Why it leaves."""
    observed_generation: int
    """Of the spec that took the replica away."""
    target_members: Annotated[tuple[TargetMember, ...], Field(max_length=64)]
    """The Pods of the replica, as they were at admission."""
    target_workload_uid: Annotated[str | None, Field(alias="targetWorkloadUID")] = None
    """Of Kueue's Workload that holds its quota; absent without one."""
    policy: RetirementPolicy
    state: RetirementState
    """How far the operation is."""
    reason: str
    """One sentence: what is being done or waited for."""
    started_at: Time
    """When it was admitted."""
    deadline: Time
    """When the operation ends without a delete, unless one was sent."""
    phase_started_at: Time
    """Since when it is in this state."""
    withdrawn_since: Time | None = None
    """Since when no router selects the replica."""
    evidence_at: Time | None = None
    """The start of the second idle round that the delete rests on."""
    in_flight: Count | None = None
    """Requests that the engine held at `lastReadAt`."""
    last_read_at: Time | None = None
    """When the engine was last read with an answer."""
    last_consumed_token: str | None = None
    """The value of the annotation that asked last for a retry or an abort, so that it counts once."""


class DepartureStatus(StatusModel):
    """A replica whose deletes were sent and that is late. Its seat stays reserved."""

    role_name: str
    """The role of the replica."""
    replica_ordinal: Count | None = None
    """Which replica of the role. Absent only for a Pod without a seat."""
    uids: Annotated[tuple[str, ...], Field(max_length=64)]
    """The Pods that are still there."""
    workload_uid: Annotated[str | None, Field(alias="workloadUID")] = None
    """Of Kueue's Workload that still holds its quota; absent without one."""
    reason: str
    """One sentence: what it is late for."""
    since: Time
    """When it was found to be late."""


class RolloutStatus(StatusModel):
    """A replica that is being replaced because the spec was edited; stored before anything of it is deleted."""

    role_name: str
    """The role of the replica."""
    replica_ordinal: Count
    """Which replica of the role."""
    uids: Annotated[tuple[str, ...], Field(max_length=64)]
    """The Pods that give way."""
    phase: RolloutPhase
    """Whether it is still leaving, or its successor is starting."""


LONGEST_MESSAGE: Final = 32768


class Condition(ApiModel):
    """A condition in the standard form of Kubernetes."""

    type: Annotated[str, Field(max_length=316, pattern=r"^[A-Za-z][A-Za-z0-9]*$")]
    """What it is about."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    observed_generation: Count | None = None
    """Of the spec that it speaks of."""
    last_transition_time: Time
    """When its status last changed."""
    reason: Annotated[
        str, Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    ]
    """Why, in a word that a program may rely on; docs/conditions.md lists them."""
    message: Annotated[str, Field(max_length=LONGEST_MESSAGE)]
    """Why, in a sentence about this very deployment."""


class ModelDeploymentStatus(StatusModel):
    """What the controller observed, and what it is doing."""

    phase: Phase | None = None
    """The whole in a word: `Degraded` is what was Ready under this very spec and no longer is."""
    observed_generation: int | None = None
    """Of the spec that this status speaks of."""
    role_summary: str | None = None
    """Ready routers and replicas by kind, e.g. `1R2S`."""
    endpoint: str | None = None
    """Where clients send requests."""
    retiring: str | None = None
    """`role/ordinal state` of the running retirement, for the printed column."""
    roles: Annotated[tuple[RoleStatus, ...], Field(json_schema_extra=map_list("name"))] | None = None
    """The replicas by role, of a dropped role too while Pods of it are there."""
    router: RouterStatus | None = None
    retirement: RetirementStatus | None = None
    departing: tuple[DepartureStatus, ...] | None = None
    """Replicas that were deleted and are late to go."""
    rollout: tuple[RolloutStatus, ...] | None = None
    """Replicas that are being replaced because the spec was edited."""
    conditions: Annotated[tuple[Condition, ...], Field(json_schema_extra=map_list("type"))] | None = None
    """What holds and what does not, each with its reason."""
