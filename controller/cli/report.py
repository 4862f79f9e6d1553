"""What a person asks about a deployment, as one typed value: which replicas there are, why one is still here.

Pure: raw objects and the API server's time in, a report out. Every view that people look at (the command
line, the demo) is made from this report, so no two of them can tell the same operation differently.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from controller.clock import parse_time
from controller.retirement_planner import budgets
from controller.retirement_planner.state import Operation, State, read_operation
from controller.snapshot import DeploymentView, PodView, Raw


class Health(StrEnum):
    """How a replica is, apart from any operation."""

    READY = "Ready"
    NOT_READY = "NotReady"
    STARTING = "Starting"
    LEAVING = "Leaving"
    MISSING = "Missing"


@dataclass(frozen=True, slots=True)
class MemberReport:
    """One Pod of a replica. `age` is seconds since its creation, `node` "" while it is not bound to one."""

    pod: str
    node: str
    age: float | None


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """One replica: `phase` is `Ready`, `NotReady`, `Starting`, `Leaving`, `Missing`, `Retiring <State>`,
    `Aborted (serving)` or `Aborted (not serving)`; `detail` adds what Kubernetes says, often nothing."""

    role: str
    ordinal: int | None
    phase: str
    detail: str
    members: tuple[MemberReport, ...]

    @property
    def title(self) -> str:
        return _title(self.role, self.ordinal)


@dataclass(frozen=True, slots=True)
class Budget:
    """A wait that ends: when it began, when it is spent, how far it is. Seconds; equality is spent."""

    began: datetime
    ends: datetime
    now: datetime

    @property
    def total(self) -> float:
        return (self.ends - self.began).total_seconds()

    @property
    def waited(self) -> float:
        return max(0.0, (self.now - self.began).total_seconds())

    @property
    def left(self) -> float:
        return max(0.0, (self.ends - self.now).total_seconds())

    @property
    def spent(self) -> bool:
        return self.now >= self.ends


class End(StrEnum):
    """What comes when the present budget is spent before its step is done."""

    ABORTED = "Aborted"
    """The replica is kept and serves again."""
    DEPARTING = "Departing"
    """It is deleted and late: recorded as departing, and nothing is forced."""


@dataclass(frozen=True, slots=True)
class TargetReport:
    """A member of the retiring replica: as recorded at admission, and what stands at its name now."""

    uid: str
    pod: str
    container_id: str
    restart_count: int
    now: str


@dataclass(frozen=True, slots=True)
class RetirementReport:
    """The running or aborted operation. `in_flight` is as of `last_read_at`; None is unknown, never zero."""

    role: str
    ordinal: int | None
    cause: str
    state: State
    reason: str
    in_flight: int | None
    last_read_at: datetime | None
    withdrawn_since: datetime | None
    evidence_at: datetime | None
    targets: tuple[TargetReport, ...]
    phase: Budget | None
    """The budget of the present step; None once nothing is waited for."""
    whole: Budget | None
    """The budget of the operation until its deletes are sent; None from then on."""
    end: End | None

    @property
    def title(self) -> str:
        return _title(self.role, self.ordinal)


@dataclass(frozen=True, slots=True)
class DepartureReport:
    """A deleted replica that is late to go."""

    title: str
    reason: str
    since: datetime | None


@dataclass(frozen=True, slots=True)
class ConditionReport:
    """A condition that is not True."""

    type: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class DeploymentReport:
    """Everything the plain views print about one deployment, at one moment of the API server's time."""

    namespace: str
    name: str
    now: datetime
    phase: str
    engine: str
    role_summary: str
    endpoint: str
    age: float | None
    replicas: tuple[ReplicaReport, ...]
    retirement: RetirementReport | None
    departing: tuple[DepartureReport, ...]
    conditions: tuple[ConditionReport, ...]


def report_deployment(raw: Raw, pods: Sequence[Raw], now: datetime) -> DeploymentReport:
    """Report one ModelDeployment. `pods` may hold Pods of others: only those that it owns are looked at.

    Raises ValueError when a newer version of Ebb wrote an operation that this one cannot read.
    """
    deployment = DeploymentView(raw)
    owned = [view for view in map(PodView, pods) if view.owner_uid == deployment.uid]
    status = deployment.status
    operation = _operation(deployment)
    return DeploymentReport(
        namespace=deployment.namespace,
        name=deployment.name,
        now=now,
        phase=str(status.get("phase") or "Unknown"),
        engine=str(((raw.get("spec") or {}).get("engine") or {}).get("name", "")),
        role_summary=str(status.get("roleSummary", "")),
        endpoint=str(status.get("endpoint", "")),
        age=_age(deployment.metadata, now),
        replicas=tuple(_replicas(raw, owned, operation, now)),
        retirement=None if operation is None else _retirement(operation, owned, now),
        departing=tuple(_departure(entry) for entry in status.get("departing") or ()),
        conditions=tuple(
            ConditionReport(
                type=str(condition.get("type", "")),
                status=str(condition.get("status", "")),
                reason=str(condition.get("reason", "")),
                message=str(condition.get("message", "")),
            )
            for condition in status.get("conditions") or ()
            if condition.get("status") != "True"
        ),
    )


def report_retirement(raw: Raw, now: datetime, pods: Sequence[Raw] = ()) -> RetirementReport | None:
    """Report the operation alone, None when there is none. Without `pods` no end of `Deleting` is known."""
    operation = _operation(DeploymentView(raw))
    return None if operation is None else _retirement(operation, [PodView(pod) for pod in pods], now)


def _operation(deployment: DeploymentView) -> Operation | None:
    try:
        return read_operation(deployment.status.get("retirement"))
    except (KeyError, ValueError) as error:
        where = f"status.retirement of {deployment.namespace}/{deployment.name}"
        raise ValueError(f"{where} cannot be read by this version: {error}") from error


# --- replicas -------------------------------------------------------------------------------------------


def _replicas(
    raw: Raw, pods: Sequence[PodView], operation: Operation | None, now: datetime
) -> Iterator[ReplicaReport]:
    """Roles in spec order, then dropped ones; ordinals upwards, declared ones without a Pod included."""
    declared = {
        str(role["name"]): int(role.get("replicas", 1)) for role in (raw.get("spec") or {}).get("roles") or ()
    }
    seated: dict[tuple[str, int], list[PodView]] = {}
    unseated: list[PodView] = []
    for pod in pods:
        seat = pod.seat
        if seat is None:
            unseated.append(pod)
        else:
            seated.setdefault((seat.role, seat.ordinal), []).append(pod)

    if operation is not None and operation.holds_reservation and operation.ordinal is not None:
        # Its Pods may be gone already, its seat is still taken.
        seated.setdefault((operation.role, operation.ordinal), [])
    dropped = sorted({role for role, _ in seated} - set(declared))
    for role in [*declared, *dropped]:
        present = {ordinal for name, ordinal in seated if name == role}
        for ordinal in sorted(present | set(range(declared.get(role, 0)))):
            members = sorted(seated.get((role, ordinal), ()), key=lambda pod: pod.name)
            yield _replica(role, ordinal, members, operation, now)
    for pod in sorted(unseated, key=lambda pod: pod.name):
        yield _replica(pod.role or "?", None, [pod], operation, now)


def _replica(
    role: str, ordinal: int | None, pods: Sequence[PodView], operation: Operation | None, now: datetime
) -> ReplicaReport:
    health, detail = _health(pods)
    phase = str(health)
    if operation is not None and _is_target(operation, role, ordinal, pods):
        if operation.holds_reservation:
            phase, detail = f"Retiring {operation.state}", detail if pods else ""
        elif health is not Health.LEAVING:
            serving = health is Health.READY and all(pod.eligible_label for pod in pods)
            phase = "Aborted (serving)" if serving else "Aborted (not serving)"
    return ReplicaReport(
        role=role,
        ordinal=ordinal,
        phase=phase,
        detail=detail,
        members=tuple(MemberReport(pod=pod.name, node=pod.node, age=_age(pod.metadata, now)) for pod in pods),
    )


def _is_target(operation: Operation, role: str, ordinal: int | None, pods: Sequence[PodView]) -> bool:
    if not pods:
        return operation.holds_reservation and (operation.role, operation.ordinal) == (role, ordinal)
    return bool(operation.target_uids & {pod.uid for pod in pods})


def _health(pods: Sequence[PodView]) -> tuple[Health, str]:
    if not pods:
        return Health.MISSING, "no Pod yet"
    if any(pod.terminating for pod in pods):
        return Health.LEAVING, ""
    size = pods[0].replica_size
    if size is not None and len(pods) != size:
        return Health.NOT_READY, f"{len(pods)} of {size} members"
    if all(pod.ready for pod in pods):
        return Health.READY, ""
    waiting = next(filter(None, map(_trouble, pods)), "")
    begun = all(_has_begun(pod) for pod in pods if not pod.ready)
    return (Health.NOT_READY if begun else Health.STARTING), waiting


def _has_begun(pod: PodView) -> bool:
    """Whether the engine was up once, or failed to come up: from then on NotReady is the honest word."""
    status = pod.main_status or {}
    return pod.terminal or bool(status.get("started")) or int(status.get("restartCount") or 0) > 0


_ORDINARY_WAITS = frozenset({"", "ContainerCreating", "PodInitializing"})


def _trouble(pod: PodView) -> str:
    """What Kubernetes says keeps a Pod from running, "" when nothing is out of the ordinary."""
    if pod.terminal:
        return str(pod.status.get("reason") or pod.phase)
    for condition in pod.status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("reason", ""))
    containers = [
        *(pod.status.get("initContainerStatuses") or ()),
        *(pod.status.get("containerStatuses") or ()),
    ]
    for container in containers:
        reason = ((container.get("state") or {}).get("waiting") or {}).get("reason", "")
        if reason not in _ORDINARY_WAITS:
            return str(reason)
    return ""


# --- the operation --------------------------------------------------------------------------------------


def _retirement(operation: Operation, pods: Sequence[PodView], now: datetime) -> RetirementReport:
    by_name = {pod.name: pod for pod in pods}
    targets = [
        by_name[t.name] for t in operation.targets if t.name in by_name and by_name[t.name].uid == t.uid
    ]
    phase, end = _phase_budget(operation, targets, now)
    before_deletes = operation.state in budgets.WITHDRAWAL or operation.state is State.DRAINING
    whole = Budget(began=operation.started_at, ends=operation.deadline, now=now) if before_deletes else None
    return RetirementReport(
        role=operation.role,
        ordinal=operation.ordinal,
        cause=str(operation.cause),
        state=operation.state,
        reason=operation.reason,
        in_flight=operation.in_flight,
        last_read_at=operation.last_read_at,
        withdrawn_since=operation.withdrawn_since,
        evidence_at=operation.evidence_at,
        targets=tuple(
            TargetReport(
                uid=target.uid,
                pod=target.name,
                container_id=target.container_id,
                restart_count=target.restart_count,
                now=_standing(target.uid, target.container_id, by_name.get(target.name)),
            )
            for target in operation.targets
        ),
        phase=phase,
        whole=whole,
        end=end,
    )


def _phase_budget(
    operation: Operation, targets: Sequence[PodView], now: datetime
) -> tuple[Budget | None, End | None]:
    if operation.state in (State.ABORTED, State.COMPLETED):
        return None, None
    ends, end = budgets.limit(operation), End.ABORTED
    if operation.state is State.SETTLING:
        end = End.DEPARTING
    elif operation.state is State.DELETING:
        # Until the API server takes a delete only the deadline ends it; then the grace of the Pods decides.
        deletions = [stamp for pod in targets if (stamp := pod.deletion_timestamp) is not None]
        if deletions:
            ends, end = max(deletions) + timedelta(seconds=budgets.DEPARTURE_SECONDS), End.DEPARTING
    return Budget(began=operation.phase_started_at, ends=ends, now=now), end


def _standing(uid: str, container_id: str, pod: PodView | None) -> str:
    """One word or two about what stands at a target's name now."""
    if pod is None:
        return "gone"
    if pod.uid != uid:
        return "gone; another Pod has its name"
    if pod.terminating:
        return "terminating"
    if container_id and pod.identity.container_id != container_id:
        return "restarted since admission"
    return "running" if pod.identity.running else "not running"


def _departure(raw: Mapping[str, Any]) -> DepartureReport:
    return DepartureReport(
        title=_title(str(raw.get("roleName", "?")), raw.get("replicaOrdinal")),
        reason=str(raw.get("reason", "")),
        since=parse_time(raw["since"]) if raw.get("since") else None,
    )


def _title(role: str, ordinal: int | None) -> str:
    return role if ordinal is None else f"{role}/{ordinal}"


def _age(metadata: Raw, now: datetime) -> float | None:
    created = metadata.get("creationTimestamp")
    return max(0.0, (now - parse_time(created)).total_seconds()) if created else None
