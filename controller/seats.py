"""Which seats of a deployment are filled, which are to be filled, and which Pods on them are of no use any more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from apis.v1alpha1 import labels
from controller.snapshot import PodView, Seat, by_ordinal


@dataclass(frozen=True, slots=True)
class SeatPlan:
    create: tuple[Seat, ...]
    """Seats that the spec declares and that no Pod holds."""
    clean_up: tuple[PodView, ...]
    """Pods that ended by themselves: they serve nothing and hold the name of their seat."""
    outdated: tuple[PodView, ...]
    """Pods that a render of their seat no longer equals."""


def plan_seats(
    *,
    replicas: Mapping[str, int],
    pods: Sequence[PodView],
    reserved: frozenset[Seat],
    hash_of: Callable[[Seat], str],
) -> SeatPlan:
    """`replicas` by role; `reserved` seats stay empty, whatever the spec says, until their last member has left.

    `hash_of` renders a seat and gives its Pod hash; it is called for declared seats that hold a Pod.
    """
    create: list[Seat] = []
    outdated: list[PodView] = []
    for role, count in replicas.items():
        held = by_ordinal(pods, role)
        for ordinal in range(count):
            seat = Seat(role, ordinal, 0)
            members = held.get(ordinal, [])
            if not members and seat not in reserved:
                create.append(seat)
            wanted = hash_of(seat) if members else ""
            outdated += [
                pod
                for pod in members
                if not pod.terminating and not pod.terminal and pod.annotations.get(labels.POD_HASH) != wanted
            ]
    ended = tuple(pod for pod in pods if pod.terminal and not pod.terminating)
    return SeatPlan(tuple(create), ended, tuple(outdated))
