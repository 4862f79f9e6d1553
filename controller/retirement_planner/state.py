"""`status.retirement` as a value: read from the status, changed only by copy, written back whole.

Fields that a newer version wrote are carried along untouched, so that a downgrade in the middle of an operation loses
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from apis.v1alpha1.status import RetirementCause, RetirementState
from controller.clock import format_time, parse_time

State = RetirementState
"""What is being done. Forward only, but for the two ends `Completed` and `Aborted`."""

Cause = RetirementCause


@dataclass(frozen=True, slots=True)
class Target:
    """One member as it was when the operation was admitted: its baseline for "the same container"."""

    uid: str
    name: str
    container_id: str
    restart_count: int


@dataclass(frozen=True, slots=True)
class Policy:
    """`spec.retirement` as copied at admission; seconds. A later edit of the spec changes nothing here."""

    withdraw_seconds: int = 30
    drain_seconds: int = 240
    settle_seconds: int = 30
    total_seconds: int = 300
    raw: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Policy:
        return cls(
            withdraw_seconds=int(raw.get("withdrawSeconds", 30)),
            drain_seconds=int(raw.get("drainSeconds", 240)),
            settle_seconds=int(raw.get("settleSeconds", 30)),
            total_seconds=int(raw.get("totalSeconds", 300)),
            raw=MappingProxyType(dict(raw)),
        )


_TIMES: Final = {
    "startedAt": "started_at",
    "deadline": "deadline",
    "phaseStartedAt": "phase_started_at",
    "withdrawnSince": "withdrawn_since",
    "evidenceAt": "evidence_at",
    "lastReadAt": "last_read_at",
}
_KNOWN: Final = frozenset(
    {
        *_TIMES,
        "roleName",
        "replicaOrdinal",
        "cause",
        "observedGeneration",
        "targetMembers",
        "targetWorkloadUID",
        "policy",
        "state",
        "reason",
        "inFlight",
        "lastConsumedToken",
    }
)


@dataclass(frozen=True, slots=True)
class Operation:
    """One retirement: one incarnation of one replica on its way out."""

    role: str
    ordinal: int | None
    cause: str
    observed_generation: int
    targets: tuple[Target, ...]
    policy: Policy
    state: State
    reason: str
    started_at: datetime
    deadline: datetime
    phase_started_at: datetime
    workload_uid: str = ""
    withdrawn_since: datetime | None = None
    evidence_at: datetime | None = None
    in_flight: int | None = None
    last_read_at: datetime | None = None
    last_consumed_token: str = ""
    unknown_fields: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def target_uids(self) -> frozenset[str]:
        return frozenset(target.uid for target in self.targets)

    @property
    def title(self) -> str:
        """`role/ordinal`, as people name a replica."""
        return self.role if self.ordinal is None else f"{self.role}/{self.ordinal}"

    @property
    def holds_reservation(self) -> bool:
        """Whether the replica is kept out of service: an aborted one serves again."""
        return self.state is not State.ABORTED

    def enter(self, state: State, reason: str, now: datetime) -> Operation:
        """Move on; the clock of the phase is stamped where the protocol says so and nowhere else."""
        stamped = state in (State.DRAINING, State.DELETING, State.SETTLING)
        return replace(
            self,
            state=state,
            reason=reason,
            phase_started_at=now if stamped else self.phase_started_at,
        )


def read_operation(raw: Mapping[str, Any] | None) -> Operation | None:
    """The operation stored in a status, None when there is none."""
    if not raw:
        return None
    times = {attribute: parse_time(raw[name]) for name, attribute in _TIMES.items() if raw.get(name)}
    return Operation(
        role=raw["roleName"],
        ordinal=raw.get("replicaOrdinal"),
        cause=raw.get("cause", Cause.REPLICAS_REDUCED),
        observed_generation=int(raw.get("observedGeneration", 0)),
        targets=tuple(
            Target(
                uid=member["uid"],
                name=member["name"],
                container_id=member.get("containerID", ""),
                restart_count=int(member.get("restartCount", 0)),
            )
            for member in raw.get("targetMembers", ())
        ),
        policy=Policy.of(raw.get("policy", {})),
        state=State(raw["state"]),
        reason=raw.get("reason", ""),
        workload_uid=raw.get("targetWorkloadUID", ""),
        in_flight=raw.get("inFlight"),
        last_consumed_token=raw.get("lastConsumedToken", ""),
        unknown_fields=MappingProxyType({k: v for k, v in raw.items() if k not in _KNOWN}),
        started_at=times["started_at"],
        deadline=times["deadline"],
        phase_started_at=times["phase_started_at"],
        withdrawn_since=times.get("withdrawn_since"),
        evidence_at=times.get("evidence_at"),
        last_read_at=times.get("last_read_at"),
    )


def write_operation(operation: Operation) -> dict[str, Any]:
    """The status field of an operation. Ordinal 0 is written; what is not known is absent."""
    written: dict[str, Any] = dict(operation.unknown_fields)
    written |= {
        "roleName": operation.role,
        "cause": str(operation.cause),
        "observedGeneration": operation.observed_generation,
        "targetMembers": [
            {
                "uid": target.uid,
                "name": target.name,
                "containerID": target.container_id,
                "restartCount": target.restart_count,
            }
            for target in operation.targets
        ],
        "targetWorkloadUID": operation.workload_uid,
        "policy": dict(operation.policy.raw),
        "state": str(operation.state),
        "reason": operation.reason,
    }
    if operation.ordinal is not None:
        written["replicaOrdinal"] = operation.ordinal
    if operation.in_flight is not None:
        written["inFlight"] = operation.in_flight
    if operation.last_consumed_token:
        written["lastConsumedToken"] = operation.last_consumed_token
    for name, attribute in _TIMES.items():
        moment: datetime | None = getattr(operation, attribute)
        if moment is not None:
            written[name] = format_time(moment)
    return written
