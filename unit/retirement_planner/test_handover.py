"""`Deleting` under a new leader, whose predecessor may have sent a delete that has not arrived yet."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from controller.retirement_planner.planner import Facts, Observe, advance
from controller.retirement_planner.state import State
from unit.builders import START, at
from unit.retirement_planner.test_planner import facts, operation, stored

DEADLINE = START + timedelta(seconds=300)


def handed_over(*, cancelled: bool = False, over: bool = False) -> Facts:
    """What a new leader knows at first; `over`: when nothing of its predecessor can arrive any more."""
    return replace(facts(cancelled=cancelled), handing_over=not over)


def test_deleting_is_not_taken_back() -> None:
    """S5 The spec wants the replica again just after a takeover: the delete goes on, since one may be on its way."""
    deleting = operation(State.DELETING, evidence_at=START, deadline=DEADLINE)
    step = advance(deleting, handed_over(cancelled=True), at(8))
    assert stored(step).state is State.DELETING and [t.uid for t in step.delete] == [deleting.targets[0].uid]
    assert advance(deleting, handed_over(cancelled=True, over=True), at(8)).operation is None


def test_deleting_is_not_aborted() -> None:
    """S5 The deadline passes just after a takeover: no abort before the predecessor's delete has come or cannot."""
    deleting = operation(State.DELETING, evidence_at=START, deadline=DEADLINE)
    step = advance(deleting, handed_over(), at(301))
    assert stored(step).state is State.DELETING
    assert stored(advance(deleting, handed_over(over=True), at(301))).state is State.ABORTED


def test_old_evidence_is_proven_again_first() -> None:
    """S2 What cannot be taken back is still not done on evidence older than 15 s: routers and engine are read again."""
    deleting = operation(State.DELETING, evidence_at=START, deadline=DEADLINE)
    step = advance(deleting, handed_over(cancelled=True), at(301))
    assert step.delete == () and step.observe is Observe.ROUND
    assert step.wake_at is not None and step.wake_at > at(301).latest, "a pass that wakes at once would spin"
