"""Which replica gives way next: the order, the gate, the slots, and properties of whole rollouts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apis.v1alpha1.status import RolloutPhase
from controller.rollout_planner import RolloutPlan, Scene, Slot, plan_rollout
from controller.snapshot import PodView
from unit.builders import START, pod

LEAVING, STARTING = RolloutPhase.LEAVING, RolloutPhase.STARTING


def plan(
    *pods: PodView, begin: bool = True, replicas: int | dict[str, int] = 3, **changes: object
) -> RolloutPlan:
    """Of a role `server`; every Pod is outdated unless said otherwise."""
    scene = {
        "replicas": {"server": replicas} if isinstance(replicas, int) else replicas,
        "pods": pods,
        "outdated": {each.uid for each in pods},
        "slots": (),
        **changes,
    }
    return plan_rollout(Scene(**scene), begin=begin)  # type: ignore[arg-type]


def slot(ordinal: int, uid: str = "", phase: RolloutPhase = LEAVING) -> Slot:
    return Slot("server", ordinal, (uid or f"uid-server-{ordinal}",), phase)


WHOLE = tuple(pod(ordinal=ordinal) for ordinal in range(3))


def test_highest_ordinal_first() -> None:
    """Of healthy replicas the highest ordinal gets a slot; nothing is deleted before that is stored."""
    found = plan(*WHOLE)
    assert found.slots == (slot(2),) and found.delete == () and not found.waits
    assert "server/2 is leaving" in found.sentence
    assert plan(*WHOLE, slots=found.slots).delete == (WHOLE[2],)


def test_up_to_date_needs_nothing() -> None:
    """Without an outdated Pod there is no slot, no sentence, nothing to wait for."""
    assert plan(*WHOLE, outdated=()) == RolloutPlan((), (), "", waits=False)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param((), id="missing"),
        pytest.param((pod(ordinal=0, ready=False),), id="not ready"),
        pytest.param((pod(ordinal=0, deleted_at=START),), id="leaving"),
        pytest.param((pod(ordinal=0, phase="Failed"),), id="ended"),
        pytest.param((pod(ordinal=0), pod(ordinal=0, uid="second")), id="doubled"),
    ],
)
def test_healthy_one_waits_for_all_others(other: tuple[PodView, ...]) -> None:
    """A healthy replica stays while any declared one, of whichever revision, is not whole and Ready."""
    found = plan(*other, *WHOLE[1:], outdated={"uid-server-1", "uid-server-2"})
    assert found.slots == () and found.waits
    assert "server/2 waits until server/0 is Ready" in found.sentence


def test_stored_step_is_taken_back_when_the_gate_shuts() -> None:
    """A slot whose delete was not sent yet is dropped when another replica turns NotReady, or the edit is undone."""
    other = pod(ordinal=0, ready=False)
    shut = plan(other, *WHOLE[1:], outdated={"uid-server-1", "uid-server-2"}, slots=[slot(2)])
    assert (shut.slots, shut.delete) == ((), ())
    assert plan(*WHOLE, outdated=(), slots=[slot(2)]) == RolloutPlan((), (), "", waits=False)


def test_broken_ones_go_first_and_need_no_gate() -> None:
    """Outdated replicas that are not Ready go before healthy ones of higher ordinals, one a pass."""
    pods = (pod(ordinal=0, ready=False), pod(ordinal=1, ready=False), WHOLE[2])
    first = plan(*pods)
    assert first.slots == (slot(1),)
    gone = (pods[0], pod(ordinal=1, ready=False, deleted_at=START), WHOLE[2])
    assert plan(*gone, slots=first.slots).slots == (slot(0), slot(1))


def test_slot_follows_its_replica() -> None:
    """Leaving while the Pod is there, Starting once it is gone, over when the successor is Ready."""
    leaving = pod(ordinal=2, deleted_at=START)
    assert plan(*WHOLE[:2], leaving, slots=[slot(2)]).slots == (slot(2),)
    assert plan(*WHOLE[:2], slots=[slot(2)]).slots == (slot(2, phase=STARTING),)
    successor = pod(ordinal=2, uid="new", ready=False)
    old = {"uid-server-0", "uid-server-1"}
    starting = plan(*WHOLE[:2], successor, outdated=old, slots=[slot(2)])
    assert starting.slots == (slot(2, phase=STARTING),) and not starting.waits
    assert "the successor of server/2 is not Ready yet" in starting.sentence
    over = plan(*WHOLE[:2], pod(ordinal=2, uid="new"), outdated=old, slots=starting.slots)
    assert over.slots == (slot(1),)


def test_newer_edit_supersedes_in_place() -> None:
    """A successor that is not Ready and outdated by a newer edit takes over the slot of its predecessor."""
    successor = pod(ordinal=2, uid="new", ready=False)
    found = plan(*WHOLE[:2], successor, slots=[slot(2, phase=STARTING)])
    assert found.slots == (slot(2, "new"),)
    assert plan(*WHOLE[:2], successor, slots=found.slots).delete == (successor,)


def test_reserved_replica_is_no_victim() -> None:
    """C1, K7 What a retirement is about is not replaced; another replica is, and alone it is waited for."""
    assert plan(*WHOLE, reserved={"uid-server-2"}).slots == (slot(1),)
    alone = plan(pod(), replicas=1, reserved={"uid-server-0"})
    assert alone.slots == () and "server/0 waits for the end of its retirement" in alone.sentence


def test_beyond_the_count_is_no_victim() -> None:
    """An outdated replica that the spec no longer declares is a removal, and its slot is dropped."""
    found = plan(WHOLE[0], pod(ordinal=5), replicas=1, slots=[slot(5)], outdated={"uid-server-5"})
    assert found.slots == () and found.delete == ()


def test_hold_stops_every_step() -> None:
    """On hold nothing is begun, not even for a broken replica, and the sentence says why."""
    found = plan(pod(ready=False), *WHOLE[1:], hold="nothing is replaced while it is paused")
    assert (found.slots, found.delete, found.waits) == ((), (), True)
    assert "while it is paused" in found.sentence


def test_pass_with_other_things_to_do_begins_nothing() -> None:
    """Without `begin` a stored step is neither taken nor dropped."""
    found = plan(*WHOLE, slots=[slot(2)], begin=False)
    assert found.slots == (slot(2),) and found.delete == ()
    assert plan(*WHOLE, begin=False).slots == ()


def test_roles_roll_in_parallel() -> None:
    """Each role has a step of its own; what one waits for does not hold the other."""
    pods = [pod("a", 0), pod("a", 1), pod("b", 0), pod("b", 1)]
    found = plan(*pods, replicas={"a": 2, "b": 2})
    assert [each.title for each in found.slots] == ["a/1", "b/1"]


# --- whole rollouts -----------------------------------------------------------------------------------------------


@dataclass
class Role:
    """A role of a cluster in which anything may happen between two passes."""

    count: int
    broken: frozenset[int] = frozenset()
    """Revisions whose image does not start."""
    revision: int = 0
    pods: dict[int, tuple[str, int, str]] = field(default_factory=dict)
    """Ordinal -> (UID, revision, state: starting, ready, sick or leaving)."""
    slots: tuple[Slot, ...] = ()
    uids: Iterator[int] = field(default_factory=lambda: count(0))

    def one_pass(self) -> tuple[PodView, ...]:
        """Plan, store or delete, and fill; returns what was deleted."""
        views = {
            ordinal: pod(ordinal=ordinal, uid=uid, ready=state in ("ready", "leaving"),
                         deleted_at=START if state == "leaving" else None)
            for ordinal, (uid, _, state) in self.pods.items()
        }  # fmt: skip
        outdated = {uid for uid, revision, _ in self.pods.values() if revision != self.revision}
        found = plan(*views.values(), replicas=self.count, outdated=outdated, slots=self.slots)
        for gone in found.delete:
            assert gone.seat is not None
            healthy = [state == "ready" for _, _, state in self.pods.values()]
            if gone.ready:
                assert len(healthy) == self.count and all(healthy), (
                    "a healthy one left while another was away"
                )
            assert gone.uid in {uid for each in self.slots for uid in each.uids}, (
                "deleted before it was stored"
            )
            self.pods[gone.seat.ordinal] = (gone.uid, -1, "leaving")
        assert len(found.delete) <= 1
        self.slots = found.slots
        for ordinal in range(self.count):
            if ordinal not in self.pods:
                self.pods[ordinal] = (f"u{next(self.uids)}", self.revision, "starting")
        return found.delete

    def happen(self, what: str, ordinal: int) -> None:
        uid, revision, state = self.pods.get(ordinal % self.count, ("", 0, ""))
        if what == "edit":
            self.revision += 1
        elif what == "undo":
            self.revision = max(0, self.revision - 1)
        elif what == "progress" and state == "leaving":
            del self.pods[ordinal % self.count]
        elif what == "progress" and state in ("starting", "sick"):
            state = "starting" if revision in self.broken else "ready"
            self.pods[ordinal % self.count] = (uid, revision, state)
        elif what == "sick" and state == "ready":
            self.pods[ordinal % self.count] = (uid, revision, "sick")
        elif what == "lose" and state:
            del self.pods[ordinal % self.count]


EVENTS = st.lists(
    st.tuples(st.sampled_from(["edit", "undo", "progress", "progress", "sick", "lose"]), st.integers(0, 3)),
    max_size=40,
)


@given(events=EVENTS, size=st.integers(1, 4), broken=st.frozensets(st.integers(1, 6), max_size=3))
def test_never_two_away_by_our_doing(
    events: list[tuple[str, int]], size: int, broken: frozenset[int]
) -> None:
    """B08-02, B08-07 Whatever happens between passes, a healthy one leaves only from a whole role; in the end all are
    on the last revision, if that one starts, and nothing is written any more."""
    role = Role(count=size, broken=broken)
    for event in events:
        role.one_pass()
        role.happen(*event)
    if role.revision in broken:
        role.revision = max(broken) + 1
    for _ in range(8 * size + 8):
        role.one_pass()
        for ordinal in range(size):
            role.happen("progress", ordinal)
    states: Mapping[int, tuple[str, int, str]] = role.pods
    assert {(revision, state) for _, revision, state in states.values()} == {(role.revision, "ready")}
    assert role.slots == () and role.one_pass() == ()
