"""Which running replica gives way next to one that is rendered from the spec as it is now. Pure.

A rollout takes no replica out of service before its delete: the deletion timestamp of a Ready Pod withdraws it, and the
drain window that it was created with lets its requests end. What is planned here is only the order. A healthy replica
leaves when everything else of its role serves; one that is not Ready costs nothing and leaves at once, so that a broken
image can be mended and never takes a healthy replica down.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from apis.v1alpha1.status import RolloutPhase
from controller.snapshot import PodView, by_ordinal

NAMED: Final = 10
"""Pods that a sentence names before it counts."""

Place = tuple[str, int]
"""(role, ordinal)."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A replica that is being replaced; stored before anything of it is deleted."""

    role: str
    ordinal: int
    uids: tuple[str, ...]
    """The Pods that give way."""
    phase: RolloutPhase

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Slot:
        return cls(
            role=raw["roleName"],
            ordinal=raw["replicaOrdinal"],
            uids=tuple(raw["uids"]),
            phase=RolloutPhase(raw["phase"]),
        )

    def write(self) -> dict[str, Any]:
        return {
            "roleName": self.role,
            "replicaOrdinal": self.ordinal,
            "uids": list(self.uids),
            "phase": str(self.phase),
        }

    @property
    def place(self) -> Place:
        return (self.role, self.ordinal)

    @property
    def title(self) -> str:
        return f"{self.role}/{self.ordinal}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a rollout is planned on."""

    replicas: Mapping[str, int]
    """Declared, by role in spec order."""
    pods: Sequence[PodView]
    """Those with a seat of their own: strays hold none and are never replaced."""
    outdated: Collection[str]
    """UIDs of Pods that a render of their seat no longer equals."""
    slots: Sequence[Slot]
    """As they are stored."""
    reserved: Collection[str] = ()
    """UIDs that a retirement is about, given up or not: whatever becomes of them, it is not decided here."""
    hold: str = ""
    """Why no step may be begun at all, "" when one may."""


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    slots: tuple[Slot, ...]
    """As they are to be stored, before anything else is done."""
    delete: tuple[PodView, ...]
    """Pods whose slot is stored and that are to be deleted now, at most one of a role."""
    sentence: str
    """What is being replaced and what waits for what; "" when every replica is up to date."""
    waits: bool
    """Whether nothing is being replaced, though something is to be."""


def plan_rollout(scene: Scene, *, begin: bool = True) -> RolloutPlan:
    """One step of every role. Without `begin` the slots only follow what happened: the pass has other things to do."""
    slots: dict[Place, Slot] = {}
    delete: list[PodView] = []
    said: list[str] = []
    stored = {slot.place: slot for slot in scene.slots}
    for role, count in scene.replicas.items():
        plan = _Role(role, count, scene, stored)
        chosen, why = plan.choose() if begin else (None, "")
        for slot in plan.slots(chosen, begin=begin):
            slots[slot.place] = slot
            if chosen is not None and stored.get(slot.place) == slot and chosen.uid in slot.uids:
                delete.append(chosen)
        said += [why] if why else []
    outdated = sorted(pod.name for pod in scene.pods if pod.uid in scene.outdated)
    waits = bool(outdated or slots) and (not slots or bool(scene.hold))
    return RolloutPlan(tuple(slots.values()), tuple(delete), _sentence(scene, slots, said, outdated), waits)


@dataclass(frozen=True, slots=True)
class _Role:
    """The replicas of one role."""

    name: str
    count: int
    scene: Scene
    stored: Mapping[Place, Slot]

    @property
    def replicas(self) -> dict[int, list[PodView]]:
        return by_ordinal(self.scene.pods, self.name)

    def choose(self) -> tuple[PodView | None, str]:
        """The Pod that gives way now; or why none may, "" when none is to.

        One whose slot is stored goes before others of its kind: a step that was begun is brought to its end.
        """
        candidates = [
            pod
            for ordinal, members in sorted(self.replicas.items(), reverse=True)
            if ordinal < self.count
            for pod in members
            if pod.uid in self.scene.outdated and not _leaving(pod)
        ]
        free = [pod for pod in candidates if pod.uid not in self.scene.reserved]
        if self.scene.hold or not candidates:
            return None, ""
        if not free:
            return None, f"{_title(candidates[0])} waits for the end of its retirement"
        broken = [pod for pod in free if not pod.ready]
        absent = self._absent()
        if absent and not broken:
            return None, f"{_title(free[0])} waits until {absent} is Ready"
        tier = broken or free
        return next((pod for pod in tier if self._slot_of(pod)), tier[0]), ""

    def slots(self, chosen: PodView | None, *, begin: bool) -> list[Slot]:
        """What is to be stored: the steps under way, and the one of `chosen`."""
        found = []
        replicas = self.replicas
        for ordinal in range(self.count):
            members = replicas.get(ordinal, [])
            slot = self.stored.get((self.name, ordinal))
            if chosen is not None and chosen in members:
                found.append(Slot(self.name, ordinal, (chosen.uid,), RolloutPhase.LEAVING))
            elif slot is not None:
                found += _followed(slot, members, begin=begin)
        return found

    def _absent(self) -> str:
        """The first declared replica that is not whole and Ready, "" when all are."""
        replicas = self.replicas
        for ordinal in range(self.count):
            members = replicas.get(ordinal, [])
            if len(members) != 1 or _leaving(members[0]) or not members[0].ready:
                return f"{self.name}/{ordinal}"
        return ""

    def _slot_of(self, pod: PodView) -> Slot | None:
        slot = pod.seat and self.stored.get((pod.seat.role, pod.seat.ordinal))
        return slot if slot and pod.uid in slot.uids else None


def _followed(slot: Slot, members: Sequence[PodView], *, begin: bool) -> list[Slot]:
    """A stored slot whose replica is not chosen now: where it is, or nothing when it is over."""
    present = [pod for pod in members if pod.uid in slot.uids]
    if any(_leaving(pod) for pod in present):
        return [slot]
    if present:
        # Stored and not deleted yet: the step is not to be taken any more, or waits for a pass that may take it.
        return [] if begin else [slot]
    if members and all(pod.ready and not _leaving(pod) for pod in members):
        return []
    return [replace(slot, phase=RolloutPhase.STARTING)]


def _sentence(scene: Scene, slots: Mapping[Place, Slot], said: Sequence[str], outdated: Sequence[str]) -> str:
    parts = []
    for slot in slots.values():
        leaving = slot.phase is RolloutPhase.LEAVING
        parts.append(
            f"{slot.title} is leaving" if leaving else f"the successor of {slot.title} is not Ready yet"
        )
    parts += said
    if scene.hold and (outdated or slots):
        parts.append(scene.hold)
    if outdated:
        more = f" and {len(outdated) - NAMED} more" if len(outdated) > NAMED else ""
        parts.append(f"still on an earlier spec: {', '.join(outdated[:NAMED])}{more}")
    return "; ".join(parts)


def _leaving(pod: PodView) -> bool:
    return pod.terminating or pod.terminal


def _title(pod: PodView) -> str:
    return f"{pod.seat.role}/{pod.seat.ordinal}" if pod.seat else pod.name
