"""The steps of an operation: what moves it, what holds it, what ends it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from controller.member_reader.verdict import Reading, Verdict, held, refused
from controller.retirement_planner.evidence import DeleteAnswer, Evidence, Round
from controller.retirement_planner.planner import HOLD_REASON, Facts, Observe, Step, admit, advance
from controller.retirement_planner.state import Operation, Policy, State, read_operation, write_operation
from controller.retirement_planner.targets import Removal
from controller.routers.base import Look, Sight
from controller.snapshot import PodView
from unit.builders import START, at, pod

TARGET = pod(ordinal=1)
WITHHELD = pod(ordinal=1, labelled=False)
"""The same Pod once its eligibility label is off."""
UID = TARGET.uid
CONTAINER = TARGET.identity.container_id
POLICY = Policy.of({"withoutRouter": "Hold"})

IDLE = Reading(verdict=Verdict.IDLE, reason="idle", complete=True, in_flight=0.0, container_id=CONTAINER)
BUSY = replace(IDLE, verdict=Verdict.BUSY, reason="the engine holds 3 in flight", in_flight=3.0)


def operation(state: State = State.DRAINING, **changes: Any) -> Operation:
    """The removal of server/1, admitted at second 0."""
    admitted = admit(Removal("server", 1, (TARGET,)), policy=POLICY, generation=4, now=at(0))
    if state in (State.DRAINING, State.DELETING):
        changes.setdefault("withdrawn_since", START)
    return replace(admitted, state=state, **changes)


def facts(
    *,
    target: PodView | None = WITHHELD,
    evidence: Evidence | None = None,
    routed: bool = True,
    cancelled: bool = False,
    preflight: Mapping[str, Reading] | None = None,
) -> Facts:
    return Facts(
        targets={UID: target},
        routed=routed,
        cancelled=cancelled,
        settle_seconds=5.0,
        evidence=evidence or Evidence(),
        preflight=preflight or {},
    )


def look(second: float, sight: Sight = Sight.CLEAN, *, lasted: float = 0.1, **changes: Any) -> Look:
    return Look(
        sight=sight,
        reason=f"{sight} at {second:g}",
        answers=(),
        started_at=at(second),
        finished_at=at(second + lasted),
        started=second,
        finished=second + lasted,
        **changes,
    )


def seen(second: float, reading: Reading = IDLE, sight: Sight = Sight.CLEAN, *, lasted: float = 0.1) -> Round:
    return Round(
        look=look(second, sight, lasted=lasted),
        readings={UID: reading},
        started_at=at(second).earliest,
        started=second,
        finished=second + lasted,
    )


def rounds(*found: Round) -> Evidence:
    evidence = Evidence()
    for one in found:
        evidence = evidence.with_round(one)
    return evidence


def looks(*found: Look) -> Evidence:
    evidence = Evidence()
    for one in found:
        evidence = evidence.with_look(one)
    return evidence


def stored(step: Step) -> Operation:
    """The record that the step wants; a cleared one is no record."""
    assert step.operation is not None
    return step.operation


class TestBudgets:
    def test_within_both_budgets(self) -> None:
        """A1 Draining, the phase 10 s old of 240 s, 200 s of the operation left: not spent."""
        draining = operation(
            phase_started_at=START + timedelta(seconds=90), deadline=START + timedelta(seconds=300)
        )
        assert stored(advance(draining, facts(), at(100))).state is State.DRAINING

    def test_phase_is_spent(self) -> None:
        """A2 Draining, the phase 241 s old, 200 s of the operation left: spent; the reason names the step."""
        draining = operation(
            phase_started_at=START, deadline=START + timedelta(seconds=441), policy=Policy(total_seconds=441)
        )
        aborted = stored(advance(draining, facts(), at(241)))
        assert aborted.state is State.ABORTED
        assert "draining did not finish within 240 s" in aborted.reason

    @pytest.mark.parametrize("now", [300.0, 305.0])
    def test_whole_operation_is_spent(self, now: float) -> None:
        """A3 Draining, the phase 10 s old, the operation's deadline passed: spent; equality counts."""
        draining = operation(phase_started_at=START + timedelta(seconds=now - 10))
        assert stored(advance(draining, facts(), at(now))).state is State.ABORTED

    def test_label_that_cannot_be_taken_off(self) -> None:
        """A4 Admitted with the label still on stays Admitted and asks again; after 30 s Aborted, kept, no delete."""
        admitted = operation(State.ADMITTED)
        step = advance(admitted, facts(target=TARGET), at(29.9))
        assert stored(step) == admitted and step.label_off == (TARGET,)
        step = advance(admitted, facts(target=TARGET), at(30))
        aborted = stored(step)
        assert aborted.state is State.ABORTED and step.delete == ()
        assert (aborted.started_at, aborted.phase_started_at) == (START, START)
        assert "the replica is kept and serves again" in aborted.reason
        assert "kubectl delete pod chat-server-r1-m0" in aborted.reason

    def test_spent_and_idle_at_once(self) -> None:
        """A5 Draining whose budget is used up at the instant the reader is idle twice: Aborted, nothing deleted."""
        draining = operation(phase_started_at=START)
        step = advance(draining, facts(evidence=rounds(seen(237), seen(239))), at(240))
        assert stored(step).state is State.ABORTED and step.delete == ()

    def test_busy_reader_moves_no_clock(self) -> None:
        """A6 A busy reader over several passes leaves startedAt and phaseStartedAt as they are."""
        current = operation(phase_started_at=START + timedelta(seconds=7))
        for second in (10.0, 15.0, 20.0):
            current = stored(advance(current, facts(evidence=rounds(seen(second, BUSY))), at(second + 1)))
            assert current.started_at == START
            assert current.phase_started_at == START + timedelta(seconds=7)
            assert current.deadline == START + timedelta(seconds=300)

    def test_phase_clock_is_stamped_where_a_phase_begins(self) -> None:
        """The clock of a phase starts on entering Draining, Deleting and Settling, and with no other step."""
        stamped = [State.DRAINING, State.DELETING, State.SETTLING]
        for state in (State.DISQUALIFIED, State.WITHDRAWING, *stamped, State.ABORTED):
            entered = operation(State.ADMITTED).enter(state, "why", at(17).latest)
            assert entered.phase_started_at == (at(17).latest if state in stamped else START)

    def test_between_the_edges_nothing_is_done(self) -> None:
        """Within the uncertainty of the server's time a budget is neither spent nor acted on."""
        draining = operation(phase_started_at=START)
        now = replace(at(240.5), earliest=at(239.5).earliest)
        step = advance(draining, facts(evidence=rounds(seen(237), seen(239))), now)
        assert stored(step).state is State.DRAINING and step.delete == ()


class TestAdmission:
    def test_record_of_a_new_operation(self) -> None:
        """B3 The admitting pass records role, ordinal, UIDs, generation; both clocks equal; the deadline 300 s on."""
        admitted = admit(Removal("server", 1, (TARGET,)), policy=POLICY, generation=4, now=at(0))
        assert (admitted.role, admitted.ordinal, admitted.observed_generation) == ("server", 1, 4)
        assert [(t.uid, t.name, t.container_id, t.restart_count) for t in admitted.targets] == [
            (UID, "chat-server-r1-m0", CONTAINER, 0)
        ]
        assert admitted.started_at == admitted.phase_started_at == START
        assert admitted.deadline == START + timedelta(seconds=300)
        assert admitted.state is State.ADMITTED

    def test_ordinal_zero_is_written(self) -> None:
        """The record survives its way through the status, ordinal 0 and unknown fields included."""
        first = pod(ordinal=0)
        admitted = admit(Removal("server", 0, (first,)), policy=POLICY, generation=1, now=at(0))
        raw = {**write_operation(admitted), "fieldOfANewerVersion": {"kept": True}}
        assert raw["replicaOrdinal"] == 0
        again = read_operation(raw)
        assert again is not None and write_operation(again) == raw

    def test_label_comes_off_before_anything_else(self) -> None:
        """Admitted moves on only when no live member carries the label."""
        step = advance(operation(State.ADMITTED), facts(target=TARGET), at(1))
        assert stored(step).state is State.ADMITTED and step.label_off == (TARGET,)
        unlabelled = facts(target=pod(ordinal=1, labelled=False))
        assert stored(advance(operation(State.ADMITTED), unlabelled, at(1))).state is State.DISQUALIFIED

    def test_without_a_router(self) -> None:
        """D5 No router: held with a reason naming the connections through the Service, label on; at 30 s Aborted."""
        admitted = operation(State.ADMITTED)
        for second in (0.0, 15.0, 29.9):
            step = advance(admitted, facts(routed=False), at(second))
            assert stored(step).state is State.ADMITTED
            assert stored(step).reason == HOLD_REASON
            assert "connections established through the Service" in HOLD_REASON
            assert step.label_off == () and step.delete == () and step.observe is Observe.NOTHING
        step = advance(replace(admitted, reason=HOLD_REASON), facts(routed=False), at(30))
        assert stored(step).state is State.ABORTED
        assert step.label_off == () and step.delete == ()
        assert HOLD_REASON in stored(step).reason

    @pytest.mark.parametrize("state", [State.ADMITTED, State.WITHDRAWING, State.DRAINING])
    def test_refusal_of_the_pod_itself_ends_at_once(self, state: State) -> None:
        """A prefill or decode replica is refused before its label is touched; waiting will not help."""
        refusal = refused("it is a decode engine: --disaggregation-mode decode")
        step = advance(operation(state), facts(preflight={UID: refusal}), at(1))
        assert stored(step).state is State.ABORTED and step.label_off == ()
        assert "--disaggregation-mode" in stored(step).reason
        assert "waiting will not help" in stored(step).reason

    def test_what_is_only_held_keeps_its_budget(self) -> None:
        """A take-over replica has nothing to read: held, not refused, so the step goes on until its budget ends."""
        take_over = {UID: held("nothing to read")}
        step = advance(operation(State.ADMITTED), facts(target=TARGET, preflight=take_over), at(1))
        assert stored(step).state is State.ADMITTED


class TestWithdrawing:
    def test_two_looks_and_the_settle_time(self) -> None:
        """F1 Two clean looks at least 1 s apart and 5 s since the first of them: Draining."""
        current = operation(State.WITHDRAWING)
        first = looks(look(1))
        current = stored(advance(current, facts(evidence=first), at(1.2)))
        assert current.state is State.WITHDRAWING and current.withdrawn_since == at(1.1).latest
        early = first.with_look(look(3))
        assert stored(advance(current, facts(evidence=early), at(3.2))).state is State.WITHDRAWING
        enough = early.with_look(look(6.2))
        moved = stored(advance(current, facts(evidence=enough), at(6.4)))
        assert moved.state is State.DRAINING and moved.phase_started_at == at(6.4).latest

    def test_one_look_is_not_enough_however_late(self) -> None:
        """A single clean look long after `withdrawnSince` (a restart) does not confirm."""
        current = operation(State.WITHDRAWING, withdrawn_since=START)
        assert stored(advance(current, facts(evidence=looks(look(9))), at(9.2))).state is State.WITHDRAWING
        close = looks(look(9), look(9.5))
        assert stored(advance(current, facts(evidence=close), at(9.7))).state is State.WITHDRAWING

    def test_unknown_look_starts_the_pair_again_but_keeps_the_stamp(self) -> None:
        """An unknown look between two clean ones breaks the pair; `withdrawnSince` stays."""
        current = operation(State.WITHDRAWING, withdrawn_since=START)
        broken = looks(look(1), look(3, Sight.UNKNOWN), look(7))
        step = advance(current, facts(evidence=broken), at(7.2))
        assert stored(step).state is State.WITHDRAWING and stored(step).withdrawn_since == START

    def test_listed_look_takes_the_stamp_away(self) -> None:
        """F1 A target that is listed again clears `withdrawnSince`; the next clean look stamps it anew."""
        current = operation(State.WITHDRAWING, withdrawn_since=START)
        again = looks(look(1), look(3, Sight.LISTED))
        current = stored(advance(current, facts(evidence=again), at(3.2)))
        assert current.withdrawn_since is None and current.state is State.WITHDRAWING
        clean = again.with_look(look(5))
        assert stored(advance(current, facts(evidence=clean), at(5.2))).withdrawn_since == at(5.1).latest

    def test_streams_under_way_do_not_deny_the_withdrawal(self) -> None:
        """A router that lists the target no more but still streams from it has let go of it."""
        current = operation(State.WITHDRAWING, withdrawn_since=START)
        busy = looks(look(4, Sight.BUSY), look(6, Sight.BUSY))
        assert stored(advance(current, facts(evidence=busy), at(6.2))).state is State.DRAINING

    def test_row_that_outlives_the_label_is_removed_by_api(self) -> None:
        """A row that is still there 3 s after the label went off is removed by API, not sooner."""
        current = operation(State.WITHDRAWING)
        row = (("chat-router-0", "10.0.6.2:8000"),)
        soon = looks(look(1, Sight.LISTED, listing=row), look(2, Sight.LISTED, listing=row))
        assert advance(current, facts(evidence=soon), at(2.2)).remove_rows == ()
        later = soon.with_look(look(4.5, Sight.LISTED, listing=row))
        [removal] = advance(current, facts(evidence=later), at(4.7)).remove_rows
        assert (removal.router, removal.address) == row[0]

    def test_withdrawal_that_is_not_confirmed_is_given_up(self) -> None:
        """30 s after admission without confirmation: Aborted, and the reason says what the last look saw."""
        current = operation(State.WITHDRAWING)
        unknown = looks(look(28, Sight.UNKNOWN))
        told = stored(advance(current, facts(evidence=unknown), at(28.2)))
        aborted = stored(advance(told, facts(evidence=unknown), at(30)))
        assert aborted.state is State.ABORTED
        assert "withdrawal did not finish within 30 s" in aborted.reason and "Unknown at 28" in aborted.reason


class TestDraining:
    def test_idle_twice_in_a_row(self) -> None:
        """G17 Two consecutive idle reads with clean looks: Deleting, on the start of the second round."""
        step = advance(operation(), facts(evidence=rounds(seen(10), seen(11.5))), at(12))
        moved = stored(step)
        assert moved.state is State.DELETING and moved.phase_started_at == at(12).latest
        assert moved.evidence_at == at(11.5).earliest
        assert step.delete == ()

    @pytest.mark.parametrize(
        "found",
        [
            (seen(10), seen(11.5, BUSY)),
            (seen(10, BUSY), seen(11.5)),
            (seen(10), seen(11.5, held("exec failed")), seen(13)),
            (seen(10), seen(11.5, BUSY), seen(13)),
            (seen(11.5),),
        ],
    )
    def test_anything_between_starts_again(self, found: tuple[Round, ...]) -> None:
        """G17 Idle then busy, busy first, or the unknown in between: stays Draining."""
        last = found[-1].finished
        step = advance(operation(), facts(evidence=rounds(*found)), at(last + 0.1))
        assert stored(step).state is State.DRAINING and step.observe is Observe.ROUND

    @pytest.mark.parametrize("second", [10.9, 20.2])
    def test_reads_too_close_or_too_far_apart(self, second: float) -> None:
        """From the end of the first idle read to the start of the second are 1 to 10 s."""
        evidence = rounds(seen(10), seen(second))
        assert (
            stored(advance(operation(), facts(evidence=evidence), at(second + 0.3))).state is State.DRAINING
        )

    @pytest.mark.parametrize(
        ("reading", "says"),
        [
            (replace(IDLE, complete=False, reason="not complete"), "idle"),
            (replace(IDLE, container_id="containerd://another"), "idle"),
            (held("the engine served no vllm:num_requests_waiting"), "vllm:num_requests_waiting"),
        ],
    )
    def test_idle_that_was_not_wholly_measured(self, reading: Reading, says: str) -> None:
        """G18 Idle but not complete, of another container, or a gauge missing: held, each with its reason."""
        evidence = rounds(seen(10, reading), seen(11.5, reading))
        step = advance(operation(), facts(evidence=evidence), at(12))
        assert stored(step).state is State.DRAINING and says in step.sentence

    @pytest.mark.parametrize("reading", [held("connection lost"), held("no live reader")])
    def test_reader_that_fails_holds(self, reading: Reading) -> None:
        """G19 A reader's error or an unknown answer holds the replica, and says why."""
        step = advance(operation(), facts(evidence=rounds(seen(10, reading))), at(10.5))
        assert stored(step).state is State.DRAINING and step.sentence == reading.reason
        assert stored(step).in_flight is None

    def test_refused_read_ends_at_once(self) -> None:
        """G19 An unsupported member is refused: Aborted, and waiting will not help."""
        step = advance(operation(), facts(evidence=rounds(seen(10, refused("no gauge list")))), at(10.5))
        assert stored(step).state is State.ABORTED and "waiting will not help" in stored(step).reason

    @pytest.mark.parametrize("sight", [Sight.BUSY, Sight.UNKNOWN, Sight.LISTED])
    def test_looks_of_the_same_rounds_must_be_clean(self, sight: Sight) -> None:
        """An idle engine is not enough while a router lists it, has streams open at it, or did not answer."""
        for evidence in (
            rounds(seen(10), seen(11.5, sight=sight)),
            rounds(seen(10, sight=sight), seen(11.5)),
        ):
            assert stored(advance(operation(), facts(evidence=evidence), at(12))).state is State.DRAINING

    def test_listed_again_while_draining(self) -> None:
        """Listed again: the stamp goes, the state stays; idle reads count once 5 s have passed since the new one."""
        listed = rounds(seen(10), seen(11.5, sight=Sight.LISTED))
        current = stored(advance(operation(), facts(evidence=listed), at(12)))
        assert current.withdrawn_since is None and current.state is State.DRAINING
        back = listed.with_round(seen(13)).with_round(seen(14.5))
        current = stored(advance(current, facts(evidence=back), at(15)))
        assert current.withdrawn_since == at(14.6).latest
        assert stored(advance(current, facts(evidence=back), at(15.1))).state is State.DRAINING
        settled = back.with_round(seen(20)).with_round(seen(21.5))
        assert stored(advance(current, facts(evidence=settled), at(22))).state is State.DELETING

    def test_evidence_that_aged_is_not_written(self) -> None:
        """Evidence older than 10 s is not the ground of a deletion; the members are read again."""
        evidence = rounds(seen(10), seen(11.5))
        step = advance(operation(), facts(evidence=evidence), at(21.6))
        assert stored(step).state is State.DRAINING and step.observe is Observe.ROUND

    def test_cadence(self) -> None:
        """1 s after an idle read, 2 to 5 s while busy, 5 to 15 s after failures."""

        def waits(*found: Round) -> float:
            return advance(operation(), facts(evidence=rounds(*found)), at(60)).observe_after

        assert 1.0 <= waits(seen(10)) <= 1.2
        busy = [seen(10 + 5 * n, BUSY) for n in range(9)]
        assert waits(*busy[:1]) == 2.0 and waits(*busy) == 5.0
        failed = [seen(10 + 5 * n, held("x")) for n in range(9)]
        assert waits(*failed[:1]) == 5.0 and waits(*failed) == 15.0
        assert waits(*busy, seen(58, held("x"))) == 5.0


class TestDeleting:
    def deleting(self, **changes: Any) -> Operation:
        return operation(
            State.DELETING, **{"phase_started_at": at(12).latest, "evidence_at": at(11.5).latest, **changes}
        )

    def test_members_are_deleted_by_uid(self) -> None:
        """B6 The delete carries the UID that was recorded at admission."""
        step = advance(self.deleting(), facts(), at(12.1))
        assert [target.uid for target in step.delete] == [UID]
        assert stored(step) == self.deleting()

    def test_waits_for_the_pod_to_go(self) -> None:
        """While a member terminates, nothing is deleted again and nothing aborts, whatever the deadline says."""
        leaving = pod(ordinal=1, deleted_at=at(290).latest)
        step = advance(self.deleting(), facts(target=leaving), at(310))
        assert stored(step).state is State.DELETING and step.delete == ()

    def test_gone_settles_then_clears(self) -> None:
        """B5 Every member absent: Settling, then the record is cleared."""
        settling = stored(advance(self.deleting(), facts(target=None), at(20)))
        assert settling.state is State.SETTLING and settling.phase_started_at == at(20).latest
        step = advance(settling, facts(target=None), at(20.1))
        assert step.operation is None and step.events[0].reason == "RetirementCompleted"

    def test_old_evidence_is_proven_again_before_the_first_delete(self) -> None:
        """N4 The first delete on evidence older than 15 s: read again, and not deleted under a request."""
        current = self.deleting()
        step = advance(current, facts(), at(72))
        assert step.delete == () and step.observe is Observe.ROUND
        busy = rounds(seen(72, BUSY))
        step = advance(current, facts(evidence=busy), at(72.5))
        assert step.delete == () and "3 in flight" in step.sentence
        idle = busy.with_round(seen(80)).with_round(seen(81.5))
        renewed = stored(advance(current, facts(evidence=idle), at(82)))
        assert renewed.evidence_at == at(81.5).earliest and renewed.state is State.DELETING
        assert [t.uid for t in advance(renewed, facts(evidence=idle), at(82.1)).delete] == [UID]
        assert stored(advance(current, facts(evidence=busy), at(300))).state is State.ABORTED

    def test_every_delete_refused(self) -> None:
        """Every delete refused until the deadline: Aborted with the server's sentence."""
        refusal = DeleteAnswer(at=at(298).latest, refused=True, sentence="a webhook says no")
        refusing = Evidence().with_delete(UID, refusal)
        current = self.deleting(evidence_at=at(290).latest)
        assert stored(advance(current, facts(evidence=refusing), at(299))).state is State.DELETING
        aborted = stored(advance(current, facts(evidence=refusing), at(300)))
        assert aborted.state is State.ABORTED and "a webhook says no" in aborted.reason

    def test_nothing_aborts_past_the_point(self) -> None:
        """S5 A delete that may still take effect is past the point: no abort, no cancel, the delete is repeated."""
        unanswered = Evidence().with_delete(UID, DeleteAnswer(at=at(20).latest, sentence="503 no leader"))
        for cancelled in (False, True):
            step = advance(self.deleting(), facts(evidence=unanswered, cancelled=cancelled), at(25))
            assert stored(step).state is State.DELETING and "503 no leader" in step.sentence
            assert [target.uid for target in step.delete] == [UID]

    def test_delete_that_never_gets_an_answer_ends(self) -> None:
        """L2 Past the deadline no delete is sent; 15 s after the last one a read shows that it had no effect."""
        lost = Evidence().with_delete(UID, DeleteAnswer(at=at(299).latest, sentence="500 webhook down"))
        current = self.deleting(evidence_at=at(290).latest)
        step = advance(current, facts(evidence=lost), at(301))
        assert stored(step).state is State.DELETING and step.delete == ()
        aborted = stored(advance(current, facts(evidence=lost), at(314)))
        assert aborted.state is State.ABORTED and "500 webhook down" in aborted.reason

    def test_process_that_changed_is_not_deleted(self) -> None:
        """S3 A container that restarted after the second idle read is not what was read: no delete, and it is said."""
        restarted = {UID: held("container main of chat-server-r1-m0 restarted once since admission")}
        step = advance(self.deleting(), facts(preflight=restarted), at(12.1))
        assert step.delete == () and "restarted once" in stored(step).reason
        pair = rounds(seen(10), seen(11.5))
        step = advance(operation(), facts(evidence=pair, preflight=restarted), at(12))
        assert stored(step).state is State.DRAINING and "restarted once" in step.sentence

    @pytest.mark.parametrize("state", [State.WITHDRAWING, State.DRAINING, State.DELETING])
    def test_label_that_comes_back(self, state: State) -> None:
        """Somebody puts the eligibility label back: it is taken off again, and nothing is decided while it is on."""
        pair = rounds(seen(10), seen(11.5))
        current = operation(state, evidence_at=at(11.5).latest, withdrawn_since=START)
        step = advance(current, facts(target=TARGET, evidence=pair), at(12))
        assert step.label_off == (TARGET,) and step.delete == ()
        assert stored(step).state is state

    def test_late_departure(self) -> None:
        """60 s past the deletion timestamp, which includes the grace, the record moves to `departing`."""
        leaving = pod(ordinal=1, deleted_at=at(42).latest)
        assert not advance(self.deleting(), facts(target=leaving), at(101.9)).departing
        step = advance(self.deleting(), facts(target=leaving), at(102))
        assert step.departing and step.operation is None
        assert step.events[0].reason == "DepartureStuck"


class TestWaysOut:
    @pytest.mark.parametrize(
        "state", [State.ADMITTED, State.DISQUALIFIED, State.WITHDRAWING, State.DRAINING, State.DELETING]
    )
    def test_cancel_before_the_point(self, state: State) -> None:
        """A removal that is taken back before the delete is cleared."""
        step = advance(operation(state), facts(cancelled=True), at(1))
        assert step.operation is None and step.delete == ()
        assert step.events[0].reason == "RetirementCancelled"

    @pytest.mark.parametrize(
        "target",
        [None, pod(ordinal=1, deleted_at=START), pod(ordinal=1, phase="Failed")],
        ids=["gone", "terminating", "ended"],
    )
    @pytest.mark.parametrize("state", [State.ADMITTED, State.WITHDRAWING, State.DRAINING, State.ABORTED])
    def test_lost_from_outside(self, state: State, target: PodView | None) -> None:
        """A member gone, terminating or ended before our delete clears the record; nothing is claimed to be kept."""
        step = advance(operation(state), facts(target=target), at(1))
        assert step.operation is None and step.delete == ()
        assert step.events[0].reason == "RetirementLost" and "from outside" in step.sentence

    def test_aborted_stays_until_it_is_declared_again(self) -> None:
        """D1 An aborted replica stays as it is, without a delete or a read; re-declared, the record is cleared."""
        aborted = operation(State.ABORTED, reason="kept")
        step = advance(aborted, facts(evidence=rounds(seen(10), seen(11.5))), at(3600))
        assert stored(step) == aborted
        assert (step.delete, step.observe, step.label_off) == ((), Observe.NOTHING, ())
        assert advance(aborted, facts(cancelled=True), at(3600)).operation is None

    def test_aborted_holds_no_reservation(self) -> None:
        """An aborted replica is offered to service again; every other state keeps it out."""
        assert not operation(State.ABORTED).holds_reservation
        assert all(operation(state).holds_reservation for state in State if state is not State.ABORTED)

    def test_stored_state_is_resumed(self) -> None:
        """B4 A restart in any state with the world unchanged goes on with the same clocks and asks nothing new."""
        for state in (State.ADMITTED, State.WITHDRAWING, State.DRAINING, State.DELETING):
            before = operation(state)
            after = read_operation(write_operation(before))
            assert after is not None
            assert advance(after, facts(), at(2)) == advance(before, facts(), at(2))
