"""What one pass decides on: a deployment, its Pods, its operation, and the moment, gathered once."""

from __future__ import annotations

from dataclasses import dataclass

from apis.v1alpha1.model_deployment import ModelDeploymentSpec
from controller.caches import Key
from controller.clock import Instant
from controller.pod_renderer.owner import Owner
from controller.retirement_planner.state import Operation
from controller.retirement_planner.targets import Removals, Wanted, removals
from controller.snapshot import DeploymentView, PodView, Seat
from controller.status import Departure


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one pass decides on."""

    deployment: DeploymentView
    spec: ModelDeploymentSpec | None
    problems: tuple[str, ...]
    pods: tuple[PodView, ...]
    routers: tuple[PodView, ...]
    operation: Operation | None
    departing: tuple[Departure, ...]
    now: Instant

    @property
    def key(self) -> Key:
        return (self.deployment.namespace, self.deployment.name)

    @property
    def owner(self) -> Owner:
        return owner_of(self.deployment)

    @property
    def wanted(self) -> Wanted | None:
        """What the spec declares, None while it is invalid: then nothing new starts."""
        if self.spec is None:
            return None
        return Wanted(
            replicas={role.name: role.replicas for role in self.spec.roles},
            entry_role=self.spec.entry.name,
            routed=self.spec.router is not None,
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
        """What the spec takes away; nothing while it is invalid."""
        return removals(self.wanted, self.pods) if self.wanted else Removals((), ())

    @property
    def routed(self) -> bool:
        """Evidence is owed by every router Pod that exists, also when the spec names none any more."""
        return bool(self.routers) or (self.spec is not None and self.spec.router is not None)


def owner_of(deployment: DeploymentView) -> Owner:
    return Owner(name=deployment.name, namespace=deployment.namespace, uid=deployment.uid)
