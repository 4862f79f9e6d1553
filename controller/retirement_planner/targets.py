"""Which replicas the spec takes away, in which order, and which of them may not start yet.

The unit is one incarnation of one replica. A replica is judged as it is deployed, by the labels and the command of its
Pods, never by a later spec.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from controller.retirement_planner.state import Cause
from controller.snapshot import PodView, by_ordinal


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the planner needs of the spec: replicas by role in spec order, the entry role, whether there is a router."""

    replicas: Mapping[str, int]
    entry_role: str
    routed: bool

    def declares(self, role: str, ordinal: int) -> bool:
        return ordinal < self.replicas.get(role, 0)


@dataclass(frozen=True, slots=True)
class Removal:
    """One replica that the spec takes away by reducing a role."""

    role: str
    ordinal: int
    pods: tuple[PodView, ...]
    cause: Cause = Cause.REPLICAS_REDUCED

    @property
    def title(self) -> str:
        return f"{self.role}/{self.ordinal}"

    @property
    def uids(self) -> frozenset[str]:
        return frozenset(pod.uid for pod in self.pods)

    @property
    def ever_ran(self) -> bool:
        return any(pod.ever_ran for pod in self.pods)


class Unhandled(StrEnum):
    """Removals that are left standing and named, because nothing here can take them away safely yet."""

    ROLE_DROPPED = "its role is not in the spec"
    SURPLUS = "its seat is taken by another Pod"
    NO_SEAT = "its labels name no seat"
    SEVERAL_MEMBERS = "it was built with a size other than 1"


@dataclass(frozen=True, slots=True)
class Removals:
    """What the spec takes away: operable replicas in order, and Pods that stay because they cannot be handled."""

    replicas: tuple[Removal, ...]
    unhandled: tuple[tuple[PodView, Unhandled], ...]


def removals(wanted: Wanted, pods: Sequence[PodView]) -> Removals:
    """Roles in spec order, the highest ordinal first. Terminal and terminating Pods start no operation."""
    unhandled: list[tuple[PodView, Unhandled]] = []
    live = [pod for pod in pods if not pod.terminal and not pod.terminating]
    for pod in live:
        seat = pod.seat
        if seat is None:
            unhandled.append((pod, Unhandled.NO_SEAT))
        elif seat.role not in wanted.replicas:
            unhandled.append((pod, Unhandled.ROLE_DROPPED))
    found: list[Removal] = []
    for role in wanted.replicas:
        for ordinal, members in sorted(by_ordinal(live, role).items(), reverse=True):
            declared = wanted.declares(role, ordinal)
            if len(members) > 1:
                # A declared seat keeps the Pod that its name belongs to; every other one is surplus.
                spare = [pod for pod in members if not (declared and _named_for_seat(pod))]
                unhandled += [(pod, Unhandled.SURPLUS) for pod in spare]
            elif not declared and members[0].replica_size != 1:
                unhandled.append((members[0], Unhandled.SEVERAL_MEMBERS))
            elif not declared:
                found.append(Removal(role, ordinal, tuple(members)))
    return Removals(tuple(found), tuple(unhandled))


def _named_for_seat(pod: PodView) -> bool:
    seat = pod.seat
    return seat is not None and pod.name.endswith(f"-{seat.role}-r{seat.ordinal}-m{seat.member}")


def eligible(pod: PodView, reserved: frozenset[str]) -> bool:
    """Labelled, not reserved, not terminating, Ready."""
    return pod.eligible_label and pod.uid not in reserved and not pod.terminating and pod.ready


def would_empty_endpoint(
    removal: Removal, *, wanted: Wanted, pods: Sequence[PodView], reserved: frozenset[str]
) -> str:
    """A sentence when taking the replica away now would leave an endpoint with nothing behind it, else "".

    Only while the spec wants capacity behind that same endpoint that is not eligible yet; a role of 0 replicas may
    empty its endpoint.
    """
    endpoints: list[tuple[str, frozenset[str]]] = [(f"role {removal.role}", frozenset({removal.role}))]
    if wanted.routed:
        endpoints.append(("the router", frozenset(wanted.replicas)))
    elif wanted.entry_role == removal.role:
        endpoints.append(("the entry Service", frozenset({removal.role})))
    if not any(eligible(pod, reserved) for pod in removal.pods):
        return ""
    for name, roles in endpoints:
        others = [
            pod
            for pod in pods
            if pod.role in roles and pod.uid not in removal.uids and eligible(pod, reserved)
        ]
        if not others and sum(wanted.replicas.get(role, 0) for role in roles) > 0:
            return (
                f"{removal.title} is the last replica that serves behind {name}; "
                "it leaves once a replica that stays is Ready"
            )
    return ""
