"""One step of an operation: from what is stored and what was seen to what is stored next and what is done now.

A pass does one of two things. Either it moves the record (then nothing else happens until that is stored), or it does
the idempotent work of the state that *is* stored. So a crash between any two writes only repeats a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Literal

from controller.clock import Instant
from controller.member_reader.verdict import Reading, Verdict
from controller.retirement_planner import budgets
from controller.retirement_planner.evidence import (
    Evidence,
    confirms_withdrawal,
    idle_pair,
    wait_before_look,
    wait_before_round,
)
from controller.retirement_planner.state import Operation, Policy, State, Target
from controller.retirement_planner.targets import Removal
from controller.routers.base import Look, Sight
from controller.snapshot import PodView

HOLD_REASON = (
    "without a router the connections established through the Service cannot be seen, so the replica is kept"
)
REMOVE_ROW_SECONDS = 3.0
"""A row that is still there this long after the label went off is removed by API as well."""


class Observe(StrEnum):
    """What the next step needs to see."""

    NOTHING = "Nothing"
    LOOK = "Look"
    ROUND = "Round"


@dataclass(frozen=True, slots=True)
class Event:
    """A Kubernetes Event about a transition."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class RemoveRow:
    router: str
    address: str


@dataclass(frozen=True, slots=True)
class Step:
    """What the planner wants. `operation` None means the record is cleared; equal to the stored one means no write."""

    operation: Operation | None
    sentence: str
    label_off: tuple[PodView, ...] = ()
    remove_rows: tuple[RemoveRow, ...] = ()
    delete: tuple[Target, ...] = ()
    observe: Observe = Observe.NOTHING
    observe_after: float = 0.0
    """Seconds from the end of the last observation."""
    wake_at: datetime | None = None
    """When the step must be looked at again though nothing happened."""
    events: tuple[Event, ...] = ()
    departing: bool = False
    """The record moves to `status.departing[]`: its deletes were sent and are late."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a step is decided on. `targets` comes from uncached reads: None is proven absence."""

    targets: Mapping[str, PodView | None]
    routed: bool
    cancelled: bool
    """The removal planner, run on a valid spec, no longer chooses these UIDs."""
    settle_seconds: float
    evidence: Evidence = field(default_factory=Evidence)
    preflight: Mapping[str, Reading] = field(default_factory=lambda: MappingProxyType({}))
    """UID -> the refusal that the Pod itself shows before anything is asked of it."""
    handing_over: bool = False
    """A delete by the process that led before this one may still be on its way: `Deleting` is not taken back."""

    @property
    def present(self) -> dict[str, PodView]:
        return {uid: pod for uid, pod in self.targets.items() if pod is not None}

    @property
    def labelled(self) -> tuple[PodView, ...]:
        """Members that carry the eligibility label, from the start or because somebody put it back."""
        return tuple(pod for pod in self.present.values() if pod.eligible_label and not pod.terminating)

    @property
    def standing(self) -> str:
        """Why a member is not what was admitted any more, "" while every identity is live."""
        return next((reading.reason for reading in self.preflight.values()), "")


def admit(removal: Removal, *, policy: Policy, generation: int, now: Instant) -> Operation:
    """The record of a new operation; its reservation counts from the moment it is stored."""
    return Operation(
        role=removal.role,
        ordinal=removal.ordinal,
        cause=removal.cause,
        observed_generation=generation,
        targets=tuple(_baseline(pod) for pod in removal.pods),
        policy=policy,
        state=State.ADMITTED,
        reason="admitted; the replica is being taken out of its endpoints",
        started_at=now.latest,
        deadline=now.latest + timedelta(seconds=policy.total_seconds),
        phase_started_at=now.latest,
    )


def advance(operation: Operation, facts: Facts, now: Instant) -> Step:
    """The next step of a stored operation."""
    if operation.state is State.ABORTED:
        return _aborted(operation, facts)
    if operation.state is State.SETTLING:
        return _settling(operation)
    if operation.state is State.DELETING:
        return _deleting(operation, facts, now)
    lost = _lost(operation, facts)
    if lost is not None:
        return lost
    if facts.cancelled:
        return _cancel(operation)
    if now.is_surely_past(budgets.limit(operation)):
        return _abort(operation, _spent(operation, facts))
    refused = next((r.reason for r in facts.preflight.values() if r.verdict is Verdict.UNSUPPORTED), None)
    if refused is not None:
        return _abort(operation, f"{refused}; waiting will not help")
    handlers = {
        State.ADMITTED: _admitted,
        State.DISQUALIFIED: _disqualified,
        State.WITHDRAWING: _withdrawing,
        State.DRAINING: _draining,
    }
    return handlers[operation.state](operation, facts, now)


def _admitted(operation: Operation, facts: Facts, now: Instant) -> Step:
    if not facts.routed:
        held = replace(operation, reason=HOLD_REASON)
        return Step(held, HOLD_REASON, wake_at=budgets.limit(operation))
    if facts.labelled:
        sentence = "taking the eligibility label off"
        return Step(operation, sentence, label_off=facts.labelled, wake_at=budgets.limit(operation))
    moved = operation.enter(
        State.DISQUALIFIED, "the label is off; the routers are being asked to let go of it", now.latest
    )
    return Step(moved, moved.reason)


def _disqualified(operation: Operation, facts: Facts, now: Instant) -> Step:
    # Routers that follow labels were asked by the very removal of the label, which is proven by now.
    moved = operation.enter(
        State.WITHDRAWING, "waiting for every router to show that it selects the replica no more", now.latest
    )
    return Step(moved, moved.reason)


def _withdrawing(operation: Operation, facts: Facts, now: Instant) -> Step:
    look = facts.evidence.looks[-1] if facts.evidence.looks else None
    since = _withdrawn_since(operation, look)
    if since != operation.withdrawn_since:
        return Step(
            replace(operation, withdrawn_since=since, reason=_waiting_sentence(look)), _waiting_sentence(look)
        )
    if (
        not facts.labelled
        and confirms_withdrawal(facts.evidence, withdrawn_since=since, settle_seconds=facts.settle_seconds)
        and now.is_surely_before(budgets.limit(operation))
    ):
        moved = operation.enter(
            State.DRAINING, "no router selects it any more; its requests are being waited for", now.latest
        )
        return Step(
            moved,
            moved.reason,
            events=(Event("Normal", "RetirementDraining", f"{operation.title}: {moved.reason}"),),
        )
    sentence = _waiting_sentence(look)
    return Step(
        replace(operation, reason=sentence),
        sentence,
        label_off=facts.labelled,
        remove_rows=_rows_to_remove(facts.evidence),
        observe=Observe.LOOK,
        observe_after=wait_before_look(facts.evidence),
        wake_at=budgets.limit(operation),
    )


def _draining(operation: Operation, facts: Facts, now: Instant) -> Step:
    if not facts.evidence.rounds:
        return _observe_round(operation, facts, operation.reason)
    seen = facts.evidence.rounds[-1]
    if seen.verdict is Verdict.UNSUPPORTED:
        return _abort(operation, f"{seen.reason}; waiting will not help")
    since = _withdrawn_since(operation, seen.look)
    if since != operation.withdrawn_since:
        return Step(replace(operation, withdrawn_since=since, reason=seen.look.reason), seen.look.reason)
    second = idle_pair(facts.evidence, operation, settle_seconds=facts.settle_seconds)
    if (
        second is not None
        and not facts.standing
        and not facts.labelled
        and now.is_surely_before(budgets.limit(operation))
        and now.age_of(second.started_at) <= budgets.EVIDENCE_WRITE_SECONDS
    ):
        moved = replace(
            operation.enter(
                State.DELETING,
                "idle twice on complete reads, and no router selects it; it is deleted",
                now.latest,
            ),
            evidence_at=second.started_at,
            in_flight=0,
            last_read_at=second.started_at,
        )
        event = Event("Normal", "RetirementDeleting", f"{operation.title}: {moved.reason}")
        return Step(moved, moved.reason, events=(event,))
    sentence = _round_sentence(facts)
    progressed = replace(operation, reason=sentence, in_flight=seen.in_flight, last_read_at=seen.started_at)
    return _observe_round(progressed, facts, sentence)


def _deleting(operation: Operation, facts: Facts, now: Instant) -> Step:
    present = facts.present
    if not present:
        moved = operation.enter(
            State.SETTLING, "every member has gone; its capacity is given back", now.latest
        )
        return Step(moved, moved.reason)
    terminating = {uid for uid, pod in present.items() if pod.terminating}
    may_come = facts.evidence.delete_may_come(now)
    past_the_point = bool(terminating) or may_come or len(present) < len(operation.targets)
    remaining = tuple(t for t in operation.targets if t.uid in present and t.uid not in terminating)
    if past_the_point:
        return _past_the_point(operation, facts, now, remaining)
    if facts.cancelled and not facts.handing_over:
        return _cancel(operation)
    if now.is_surely_past(operation.deadline) and not facts.handing_over:
        refusals = sorted({answer.sentence for answer in facts.evidence.deletes.values()})
        why = f"no delete was accepted: {refusals[0]}" if refusals else budgets.step_name(operation)
        return _abort(operation, why)
    aged = (
        operation.evidence_at is None or now.age_of(operation.evidence_at) > budgets.EVIDENCE_DELETE_SECONDS
    )
    if aged or facts.standing or facts.labelled:
        return replace(_prove_again(operation, facts, now), wake_at=now.latest + timedelta(seconds=2))
    refused = _refusal(facts)
    sentence = (
        f"the delete was refused and is tried again: {refused}"
        if refused
        else "the members are deleted by UID"
    )
    told = replace(operation, reason=sentence) if refused else operation
    return Step(told, sentence, delete=remaining, wake_at=now.latest + timedelta(seconds=2))


def _refusal(facts: Facts) -> str:
    """The API server's words about the last delete, "" when it was not refused."""
    return next((answer.sentence for answer in facts.evidence.deletes.values() if answer.refused), "")


def _past_the_point(operation: Operation, facts: Facts, now: Instant, remaining: tuple[Target, ...]) -> Step:
    stamps = [pod.deletion_timestamp for pod in facts.present.values()]
    latest = max((stamp for stamp in stamps if stamp is not None), default=None)
    late_at = latest + timedelta(seconds=budgets.DEPARTURE_SECONDS) if latest else None
    if not remaining and late_at is not None and now.is_surely_past(late_at):
        sentence = (
            f"{operation.title} was deleted and has not left {budgets.DEPARTURE_SECONDS:.0f} s past its grace"
        )
        return Step(None, sentence, departing=True, events=(Event("Warning", "DepartureStuck", sentence),))
    if latest is None:
        # Nothing terminates: a delete is on its way, or its answer was lost. Past the deadline none is sent any more,
        # so that the last one's answer, or the lack of an effect, settles what came of it.
        told = sorted({answer.sentence for answer in facts.evidence.deletes.values() if answer.sentence})
        sentence = f"the delete has no definite answer yet{f': {told[0]}' if told else ''}"
        again = () if now.is_surely_past(operation.deadline) else remaining
        wake = now.latest + timedelta(seconds=2)
        return Step(replace(operation, reason=sentence), sentence, delete=again, wake_at=wake)
    sentence = f"deleted; the engine has its grace to exit until {latest:%H:%M:%S} UTC at the latest"
    wake = now.latest + timedelta(seconds=2) if remaining or late_at is None else late_at
    return Step(replace(operation, reason=sentence), sentence, delete=remaining, wake_at=wake)


def _prove_again(operation: Operation, facts: Facts, now: Instant) -> Step:
    """The first delete is about to be sent on old evidence: by a process that was suspended, or by a new one."""
    look = facts.evidence.looks[-1] if facts.evidence.looks else None
    since = _withdrawn_since(operation, look)
    if since != operation.withdrawn_since:
        return Step(replace(operation, withdrawn_since=since), _waiting_sentence(look))
    second = idle_pair(facts.evidence, operation, settle_seconds=facts.settle_seconds)
    fresh = second is not None and now.age_of(second.started_at) <= budgets.EVIDENCE_WRITE_SECONDS
    if second is not None and fresh and not facts.standing and not facts.labelled:
        proven = replace(operation, evidence_at=second.started_at)
        return Step(proven, "idle again on fresh reads; it is deleted")
    sentence = "the evidence no longer holds before the delete was sent, so routers and engine are read again"
    refused = _refusal(facts)
    if refused:
        sentence = f"the delete was refused and is tried again on fresh evidence: {refused}"
    elif facts.standing or facts.evidence.rounds:
        sentence = f"{sentence}: {_round_sentence(facts)}"
    return _observe_round(replace(operation, reason=sentence), facts, sentence)


def _settling(operation: Operation) -> Step:
    sentence = f"{operation.title} has left without a request cut"
    return Step(
        None, sentence, events=(Event("Normal", "RetirementCompleted", f"{operation.title} was retired"),)
    )


def _aborted(operation: Operation, facts: Facts) -> Step:
    if any(pod is None or pod.terminating or pod.terminal for pod in facts.targets.values()):
        sentence = f"{operation.title} was terminated from outside after its removal had been given up"
        return Step(None, sentence, events=(Event("Normal", "RetirementLost", sentence),))
    if facts.cancelled:
        return Step(None, f"{operation.title} is declared again")
    return Step(operation, operation.reason)


def _lost(operation: Operation, facts: Facts) -> Step | None:
    """A member that is gone, ended or terminating before any delete of ours: not this operation's doing."""
    for target in operation.targets:
        pod = facts.targets.get(target.uid)
        if pod is None or pod.terminating or pod.terminal:
            what = "is gone" if pod is None else "is being deleted" if pod.terminating else "has ended"
            sentence = f"Pod {target.name} of {operation.title} {what}: terminated from outside"
            return Step(None, sentence, events=(Event("Warning", "RetirementLost", sentence),))
    return None


def _cancel(operation: Operation) -> Step:
    sentence = f"the spec wants {operation.title} again; it goes back into service"
    return Step(None, sentence, events=(Event("Normal", "RetirementCancelled", sentence),))


def _abort(operation: Operation, why: str) -> Step:
    names = " ".join(target.name for target in operation.targets)
    sentence = (
        f"{why}; the replica is kept and serves again. To remove it all the same: kubectl delete pod {names}"
    )
    moved = operation.enter(State.ABORTED, sentence, operation.phase_started_at)
    event = Event("Warning", "RetirementAborted", f"{operation.title}: {sentence}")
    return Step(moved, sentence, events=(event,))


def _spent(operation: Operation, facts: Facts) -> str:
    """Which step used up its time, and what it was waiting for."""
    if operation.state is State.DRAINING and facts.evidence.rounds:
        return f"{budgets.step_name(operation)}: {_round_sentence(facts)}"
    return f"{budgets.step_name(operation)}: {operation.reason}"


def _observe_round(operation: Operation, facts: Facts, sentence: str) -> Step:
    return Step(
        operation,
        sentence,
        label_off=facts.labelled,
        remove_rows=_rows_to_remove(facts.evidence),
        observe=Observe.ROUND,
        observe_after=wait_before_round(facts.evidence, operation),
        wake_at=budgets.limit(operation),
    )


def _withdrawn_since(operation: Operation, look: Look | None) -> datetime | None:
    """A look that lists a target takes the stamp away, the next one that does not sets it; the unknown leaves it."""
    if look is None or look.sight is Sight.UNKNOWN:
        return operation.withdrawn_since
    if look.sight is Sight.LISTED:
        return None
    return operation.withdrawn_since or look.finished_at.latest


def _rows_to_remove(evidence: Evidence) -> tuple[RemoveRow, ...]:
    """Rows that outlived the label by more than a moment, as the last look shows them."""
    if not evidence.looks or not evidence.looks[-1].listing:
        return ()
    first = next((look for look in evidence.looks if look.listing), evidence.looks[-1])
    if evidence.looks[-1].finished - first.started < REMOVE_ROW_SECONDS:
        return ()
    return tuple(RemoveRow(router, address) for router, address in evidence.looks[-1].listing)


def _waiting_sentence(look: Look | None) -> str:
    if look is None:
        return "waiting for every router to show that it selects the replica no more"
    if look.withdrawn:
        return "no router selects it; a request picked just before may still be on its way"
    return f"withdrawal is not confirmed: {look.reason}"


def _round_sentence(facts: Facts) -> str:
    if facts.standing:
        return facts.standing
    seen = facts.evidence.rounds[-1]
    if seen.verdict is not Verdict.IDLE:
        return seen.reason
    if seen.look.sight is not Sight.CLEAN:
        return f"the engine is idle, but {seen.look.reason}"
    return "the engine is idle; a second idle read in a row is needed"


def _baseline(pod: PodView) -> Target:
    identity = pod.identity
    return Target(
        uid=pod.uid,
        name=pod.name,
        container_id=identity.container_id,
        restart_count=identity.restart_count,
    )
