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


Count = Annotated[int, Field(ge=0)]


class RoleStatus(StatusModel):
    """The replicas of one role."""

    name: str
    kind: str
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
    ready: Count | None = None


class TargetMember(StatusModel):
    """A Pod of the replica that leaves, and the process in it, as they were at admission."""

    uid: str
    name: str
    container_id: Annotated[str | None, Field(alias="containerID")] = None
    restart_count: Count | None = None


class RetirementPolicy(StatusModel):
    """`spec.retirement` as it was at admission."""

    without_router: str
    withdraw_seconds: int
    drain_seconds: int
    settle_seconds: int
    total_seconds: int


class RetirementStatus(StatusModel):
    """The one running retirement: which replica leaves, how far it is, and on what evidence."""

    role_name: str
    replica_ordinal: Count | None = None
    """Absent only for a Pod without a seat."""
    cause: RetirementCause
    observed_generation: int
    target_members: Annotated[tuple[TargetMember, ...], Field(max_length=64)]
    target_workload_uid: Annotated[str | None, Field(alias="targetWorkloadUID")] = None
    policy: RetirementPolicy
    state: RetirementState
    reason: str
    """One sentence: what is being done or waited for."""
    started_at: Time
    deadline: Time
    phase_started_at: Time
    withdrawn_since: Time | None = None
    """Since when no router selects the replica."""
    evidence_at: Time | None = None
    """The start of the second idle round that the delete rests on."""
    in_flight: Count | None = None
    """Requests that the engine held at `lastReadAt`."""
    last_read_at: Time | None = None
    last_consumed_token: str | None = None


class DepartureStatus(StatusModel):
    """A replica whose deletes were sent and that is late. Its seat stays reserved."""

    role_name: str
    replica_ordinal: Count | None = None
    uids: Annotated[tuple[str, ...], Field(max_length=64)]
    workload_uid: Annotated[str | None, Field(alias="workloadUID")] = None
    reason: str
    since: Time


LONGEST_MESSAGE: Final = 32768


class Condition(ApiModel):
    """A condition in the standard form of Kubernetes."""

    type: Annotated[str, Field(max_length=316, pattern=r"^[A-Za-z][A-Za-z0-9]*$")]
    status: Literal["True", "False", "Unknown"]
    observed_generation: Count | None = None
    last_transition_time: Time
    reason: Annotated[
        str, Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    ]
    message: Annotated[str, Field(max_length=LONGEST_MESSAGE)]


class ModelDeploymentStatus(StatusModel):
    """What the controller observed, and what it is doing."""

    phase: Phase | None = None
    observed_generation: int | None = None
    role_summary: str | None = None
    """Ready routers and replicas by kind, e.g. `1R2S`."""
    endpoint: str | None = None
    """Where clients send requests."""
    retiring: str | None = None
    """`role/ordinal state` of the running retirement, for the printed column."""
    roles: Annotated[tuple[RoleStatus, ...], Field(json_schema_extra=map_list("name"))] | None = None
    router: RouterStatus | None = None
    retirement: RetirementStatus | None = None
    departing: tuple[DepartureStatus, ...] | None = None
    conditions: Annotated[tuple[Condition, ...], Field(json_schema_extra=map_list("type"))] | None = None
