"""What one pass decides on: a deployment, its Pods, its operation, and the moment, gathered once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from apis.v1alpha1 import labels
from apis.v1alpha1.model_deployment import ModelDeploymentSpec
from controller.caches import Key
from controller.clock import Instant
from controller.pod_renderer.hash import pod_hash
from controller.pod_renderer.owner import Owner
from controller.pod_renderer.pod import render_pod
from controller.pod_renderer.problems import Problem, parse_spec, spec_problems
from controller.retirement_planner.state import Operation, read_operation
from controller.retirement_planner.targets import Removals, Wanted, removals
from controller.rollout_planner import Slot
from controller.seats import SeatPlan, plan_seats
from controller.snapshot import DeploymentView, PodView, Seat
from controller.status import Departure


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one pass decides on."""

    deployment: DeploymentView
    spec: ModelDeploymentSpec | None
    problems: tuple[Problem, ...]
    pods: tuple[PodView, ...]
    routers: tuple[PodView, ...]
    operation: Operation | None
    departing: tuple[Departure, ...]
    rollout: tuple[Slot, ...]
    now: Instant

    @classmethod
    def of(cls, deployment: DeploymentView, now: Instant) -> Self:
        """What the deployment alone says; its Pods are to be added."""
        spec, problems = _read_spec(deployment)
        return cls(
            deployment=deployment,
            spec=spec,
            problems=problems,
            pods=(),
            routers=(),
            operation=read_operation(deployment.status.get("retirement")),
            departing=tuple(Departure.read(raw) for raw in deployment.status.get("departing") or ()),
            rollout=tuple(Slot.read(raw) for raw in deployment.status.get("rollout") or ()),
            now=now,
        )

    def with_pods(self, pods: Sequence[PodView]) -> Self:
        """With those of `pods` that the deployment owns, and those that carry the labels of its router."""
        return replace(
            self,
            pods=tuple(pod for pod in pods if pod.owner_uid == self.deployment.uid),
            routers=tuple(pod for pod in pods if pod.role == labels.ROUTER_COMPONENT),
        )

    def without_departed(self) -> Self:
        """Without the records of replicas whose last Pod has gone."""
        present = {pod.uid for pod in self.pods}
        return replace(self, departing=tuple(d for d in self.departing if present & set(d.uids)))

    @property
    def key(self) -> Key:
        return (self.deployment.namespace, self.deployment.name)

    @property
    def owner(self) -> Owner:
        return owner_of(self.deployment)

    @property
    def wanted(self) -> Wanted:
        """What the spec declares, valid or not; on an invalid one nothing new starts."""
        return Wanted(
            replicas={name: replicas for name, (_, replicas) in self.deployment.roles.items()},
            entry_role=self.spec.entry.name if self.spec else "",
            routed=self.spec is not None and self.spec.router is not None,
        )

    @property
    def reserved_uids(self) -> frozenset[str]:
        """Pods that are on their way out of service."""
        if self.operation is None or not self.operation.holds_reservation:
            return frozenset()
        return self.operation.target_uids

    @property
    def reserved_seats(self) -> frozenset[Seat]:
        seats = {Seat(d.role, d.ordinal, 0) for d in self.departing if d.ordinal is not None}
        if self.operation is not None and self.operation.ordinal is not None:
            seats.add(Seat(self.operation.role, self.operation.ordinal, 0))
        return frozenset(seats)

    @property
    def removals(self) -> Removals:
        """What the spec takes away, valid or not."""
        return removals(self.wanted, self.pods)

    @property
    def routed(self) -> bool:
        """Evidence is owed by every router Pod that exists, also when the spec names none any more."""
        return bool(self.routers) or (self.spec is not None and self.spec.router is not None)


def seats_of(snapshot: Snapshot) -> SeatPlan:
    """Seats and Pods against the spec; of one that cannot be rendered nothing is known."""
    spec = snapshot.spec
    if spec is None:
        return SeatPlan((), (), ())
    return plan_seats(
        replicas={role.name: role.replicas for role in spec.roles},
        pods=snapshot.pods,
        reserved=snapshot.reserved_seats,
        hash_of=lambda seat: pod_hash(render_seat(snapshot, spec, seat)),
    )


def render_seat(snapshot: Snapshot, spec: ModelDeploymentSpec, seat: Seat) -> dict[str, Any]:
    """The Pod that the seat would get now."""
    role = next(role for role in spec.roles if role.name == seat.role)
    return render_pod(snapshot.owner, spec, role, ordinal=seat.ordinal, member=seat.member)


def owner_of(deployment: DeploymentView) -> Owner:
    return Owner(name=deployment.name, namespace=deployment.namespace, uid=deployment.uid)


def _read_spec(deployment: DeploymentView) -> tuple[ModelDeploymentSpec | None, tuple[Problem, ...]]:
    """The spec when it can be rendered, else None and what is wrong with it."""
    parsed = parse_spec(deployment.raw["spec"])
    if not isinstance(parsed, ModelDeploymentSpec):
        return None, parsed
    problems = spec_problems(owner_of(deployment), parsed)
    return (None if problems else parsed), problems
