"""The status of a deployment, computed whole from one snapshot and the plans made on it. Pure.

Counts are replicas. What is unknown is absent, an observed zero is 0; fields that this version does not know are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from apis.v1alpha1.conditions import ConditionType, Reason
from apis.v1alpha1.model_deployment import ModelDeploymentSpec
from apis.v1alpha1.status import LONGEST_MESSAGE
from controller.clock import format_time
from controller.pod_renderer.problems import Problem
from controller.pod_renderer.warnings import spec_warnings
from controller.retirement_planner.state import Operation, State, write_operation
from controller.retirement_planner.targets import Unhandled
from controller.rollout_planner import RolloutPlan
from controller.snapshot import DeploymentView, PodView, by_ordinal

KNOWN = frozenset(
    {
        "phase",
        "observedGeneration",
        "roleSummary",
        "retiring",
        "endpoint",
        "roles",
        "router",
        "retirement",
        "departing",
        "rollout",
        "conditions",
    }
)


@dataclass(frozen=True, slots=True)
class Departure:
    """A replica whose deletes were sent and that is late; its seat stays reserved until its Pods are gone."""

    role: str
    ordinal: int | None
    uids: tuple[str, ...]
    reason: str
    since: str
    workload_uid: str = ""

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Departure:
        return cls(
            role=raw["roleName"],
            ordinal=raw.get("replicaOrdinal"),
            uids=tuple(raw.get("uids", ())),
            reason=raw.get("reason", ""),
            since=raw["since"],
            workload_uid=raw.get("workloadUID", ""),
        )

    def write(self) -> dict[str, Any]:
        ordinal = {} if self.ordinal is None else {"replicaOrdinal": self.ordinal}
        return {
            "roleName": self.role,
            **ordinal,
            "uids": list(self.uids),
            "workloadUID": self.workload_uid,
            "reason": self.reason,
            "since": self.since,
        }


@dataclass(frozen=True, slots=True)
class RouterFacts:
    """How many router replicas are wanted, and how many of its Pods are Ready."""

    desired: int
    ready: int


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything that the status tells about, as one pass saw it."""

    deployment: DeploymentView
    spec: ModelDeploymentSpec | None
    problems: Sequence[Problem]
    """Empty when the spec is valid."""
    pods: Sequence[PodView]
    outdated: Sequence[PodView]
    operation: Operation | None
    departing: Sequence[Departure]
    rollout: RolloutPlan
    unhandled: Sequence[tuple[PodView, Unhandled]]
    waiting: str
    """Why a removal that the spec asks for has not begun, "" when none waits."""
    refused_creates: Sequence[str]
    """The API server's sentences."""
    router: RouterFacts | None
    endpoint: str
    waiting_reason: Reason = Reason.WOULD_EMPTY_ENDPOINT


def compute_status(picture: Picture, now: datetime) -> dict[str, Any]:
    """The whole `status` object to store."""
    before = picture.deployment.status
    roles = _roles(picture)
    conditions = _conditions(picture, roles)
    status: dict[str, Any] = {key: value for key, value in before.items() if key not in KNOWN}
    status |= {
        "phase": _phase(picture, roles),
        "observedGeneration": picture.deployment.generation,
        "roleSummary": _summary(picture, roles),
        "roles": roles,
        "conditions": [
            _stamp(condition, before.get("conditions") or (), picture.deployment.generation, now)
            for condition in conditions
        ],
    }
    if picture.endpoint:
        status["endpoint"] = picture.endpoint
    if picture.router is not None:
        status["router"] = {"desired": picture.router.desired, "ready": picture.router.ready}
    if picture.operation is not None:
        status["retirement"] = write_operation(picture.operation)
        status["retiring"] = f"{picture.operation.title} {picture.operation.state}"
    if picture.departing:
        status["departing"] = [departure.write() for departure in picture.departing]
    if picture.rollout.slots:
        status["rollout"] = [slot.write() for slot in picture.rollout.slots]
    return status


@dataclass(frozen=True, slots=True)
class _Condition:
    type: ConditionType
    holds: bool
    reason: Reason
    message: str


def _roles(picture: Picture) -> list[dict[str, Any]]:
    """One row a role of the spec, and one with `desired` 0 for a role that was dropped and still has Pods."""
    declared = picture.deployment.roles
    names = list(declared)
    names += sorted({pod.role for pod in picture.pods if pod.role} - set(declared))
    outdated = {pod.uid for pod in picture.outdated}
    unhandled = {pod.uid for pod, _ in picture.unhandled}
    rows = []
    for name in names:
        replicas = by_ordinal(
            [pod for pod in picture.pods if pod.uid not in unhandled or name not in declared], name
        )
        whole = [pods for pods in replicas.values() if all(_counts(pod) for pod in pods)]
        ready = [pods for pods in whole if all(pod.ready for pod in pods)]
        kind, desired = declared.get(name, ("Server", 0))
        row: dict[str, Any] = {"name": name, "kind": kind, "desired": desired, "ready": len(ready)}
        if picture.spec is not None:
            row["updated"] = sum(1 for pods in whole if not any(pod.uid in outdated for pod in pods))
        spare = sum(1 for pod in picture.pods if pod.uid in unhandled and pod.role == name)
        if spare:
            row["unmanaged"] = spare
        rows.append(row)
    return rows


def _counts(pod: PodView) -> bool:
    return not pod.terminating and not pod.terminal


def _summary(picture: Picture, roles: Sequence[Mapping[str, Any]]) -> str:
    """`1R2S`: Ready routers (only with a router), servers, prefillers, decoders."""
    letters = {"Server": "S", "Prefill": "P", "Decode": "D"}
    counts: dict[str, int] = {}
    for row in roles:
        letter = letters[row["kind"]]
        counts[letter] = counts.get(letter, 0) + row["ready"]
    routers = f"{picture.router.ready}R" if picture.router is not None else ""
    return routers + "".join(f"{counts[letter]}{letter}" for letter in "SPD" if letter in counts)


def _phase(picture: Picture, roles: Sequence[Mapping[str, Any]]) -> str:
    """Degraded is what was once whole under this very spec; anything else that is not whole is still starting."""
    if picture.deployment.terminating:
        return "Deleting"
    if all(row["ready"] >= row["desired"] for row in roles) and _router_ready(picture):
        return "Ready"
    before = picture.deployment.status
    was_whole = before.get("phase") in ("Ready", "Degraded")
    same_spec = before.get("observedGeneration") == picture.deployment.generation
    return "Degraded" if was_whole and same_spec else "Starting"


def _router_ready(picture: Picture) -> bool:
    return picture.router is None or picture.router.ready >= picture.router.desired


def _conditions(picture: Picture, roles: Sequence[Mapping[str, Any]]) -> list[_Condition]:
    conditions = [
        _spec_valid(picture),
        _roles_ready(picture, roles),
        _up_to_date(picture),
        _removals_settled(picture),
    ]
    if picture.router is not None:
        ready, desired = picture.router.ready, picture.router.desired
        conditions.append(
            _Condition(
                ConditionType.ROUTER_READY,
                ready >= desired,
                Reason.READY if ready >= desired else Reason.NOT_READY,
                f"{ready} of {desired} router replicas are Ready",
            )
        )
    return [_ready(picture, roles), *conditions]


def _ready(picture: Picture, roles: Sequence[Mapping[str, Any]]) -> _Condition:
    short = [row["name"] for row in roles if row["ready"] < row["desired"]]
    if picture.deployment.paused:
        return _Condition(
            ConditionType.READY,
            not short and _router_ready(picture),
            Reason.PAUSED,
            "paused: nothing is created or removed until the annotation ebb.dev/paused is taken off",
        )
    if short:
        return _Condition(
            ConditionType.READY, False, Reason.NOT_READY, f"roles not ready yet: {', '.join(short)}"
        )
    if not _router_ready(picture):
        return _Condition(ConditionType.READY, False, Reason.NOT_READY, "the router is not ready yet")
    return _Condition(
        ConditionType.READY, True, Reason.READY, "every role serves with the replicas it declares"
    )


def _spec_valid(picture: Picture) -> _Condition:
    if picture.problems:
        (reason, *others) = {problem.condition_reason for problem in picture.problems}
        message = "; ".join(map(str, picture.problems))
        return _Condition(ConditionType.SPEC_VALID, False, Reason.INVALID if others else reason, message)
    warnings = spec_warnings(picture.spec) if picture.spec is not None else ()
    if warnings:
        message = f"the spec can be rendered, but {'; '.join(warnings)}"
        return _Condition(ConditionType.SPEC_VALID, True, Reason.VALID_WITH_WARNINGS, message)
    return _Condition(ConditionType.SPEC_VALID, True, Reason.VALID, "the spec can be rendered")


def _roles_ready(picture: Picture, roles: Sequence[Mapping[str, Any]]) -> _Condition:
    if picture.refused_creates:
        return _Condition(
            ConditionType.ROLES_READY, False, Reason.CREATE_REFUSED, "; ".join(picture.refused_creates)
        )
    short = [
        f"{row['name']} {row['ready']}/{row['desired']}" for row in roles if row["ready"] < row["desired"]
    ]
    if short:
        unfilled = "; lost ones are not made anew while the spec is invalid" if picture.spec is None else ""
        message = f"ready replicas: {', '.join(short)}{unfilled}"
        return _Condition(ConditionType.ROLES_READY, False, Reason.NOT_READY, message)
    return _Condition(ConditionType.ROLES_READY, True, Reason.READY, "every declared replica is Ready")


def _up_to_date(picture: Picture) -> _Condition:
    rollout = picture.rollout
    if rollout.sentence:
        reason = Reason.ROLLOUT_WAITING if rollout.waits else Reason.ROLLING_OUT
        return _Condition(ConditionType.REPLICAS_UP_TO_DATE, False, reason, rollout.sentence)
    if picture.spec is None:
        message = "nothing is replaced until the spec is valid"
        return _Condition(ConditionType.REPLICAS_UP_TO_DATE, False, Reason.ROLLOUT_WAITING, message)
    return _Condition(
        ConditionType.REPLICAS_UP_TO_DATE, True, Reason.UP_TO_DATE, "every replica runs what the spec says"
    )


def _removals_settled(picture: Picture) -> _Condition:
    def unsettled(reason: Reason, message: str) -> _Condition:
        return _Condition(ConditionType.REMOVALS_SETTLED, False, reason, message)

    left = [f"{pod.name} ({why})" for pod, why in picture.unhandled]
    also = f"; also left standing: {', '.join(left)}" if left else ""
    behind = f"; {picture.waiting}" if picture.waiting else ""
    operation = picture.operation
    if operation is not None and operation.state is State.ABORTED:
        return unsettled(Reason.RETIREMENT_ABORTED, f"{operation.title}: {operation.reason}{behind}{also}")
    if operation is not None:
        # Without the running sentence, which changes by the second: a condition is for transitions.
        return unsettled(Reason.RETIREMENT_RUNNING, f"{operation.title} is being retired{behind}{also}")
    if picture.departing:
        late = ", ".join(departure.reason for departure in picture.departing)
        return unsettled(Reason.DEPARTURE_STUCK, f"{late}{behind}{also}")
    if picture.waiting:
        return unsettled(picture.waiting_reason, f"{picture.waiting}{also}")
    if left:
        return unsettled(Reason.NOT_SUPPORTED_YET, f"left standing: {', '.join(left)}")
    return _Condition(ConditionType.REMOVALS_SETTLED, True, Reason.SETTLED, "nothing waits to be removed")


def _stamp(
    condition: _Condition, before: Sequence[Mapping[str, Any]], generation: int, now: datetime
) -> dict[str, Any]:
    """In the form of metav1.Condition; the transition time moves only with the status."""
    value = "True" if condition.holds else "False"
    old = next((c for c in before if c.get("type") == condition.type), {})
    moved = old.get("status") != value or not old.get("lastTransitionTime")
    return {
        "type": str(condition.type),
        "status": value,
        "observedGeneration": generation,
        "lastTransitionTime": format_time(now) if moved else old["lastTransitionTime"],
        "reason": str(condition.reason),
        "message": _fitted(condition.message),
    }


def _fitted(message: str) -> str:
    """A thousand Pod names do not fit into a condition; its beginning does."""
    return message if len(message) <= LONGEST_MESSAGE else f"{message[: LONGEST_MESSAGE - 1]}…"
