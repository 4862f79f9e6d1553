"""What the answers of all router Pods prove about a target, and what they do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from controller.routers.base import AnswerKind, Look, RouterAnswer, Sight, Surroundings, judge, process_of
from controller.snapshot import PodView
from unit.builders import at, pod, router_pod

KEEPER, TARGET = pod(ordinal=0), pod(ordinal=1)
TARGET_ROW, KEEPER_ROW = f"{TARGET.ip}:8000", f"{KEEPER.ip}:8000"


def around(*routers: PodView, pods: tuple[PodView, ...] = (KEEPER, TARGET)) -> Surroundings:
    return Surroundings(routers=routers, pods=pods)


def answer(router: PodView, *rows: str, kind: AnswerKind = AnswerKind.COMPLETE, **facts: Any) -> RouterAnswer:
    return RouterAnswer(
        router=router.name, router_uid=router.uid, process=process_of(router), kind=kind, rows=rows, **facts
    )


def look(
    *answers: RouterAnswer,
    before: Surroundings | None = None,
    after: Surroundings | None = None,
    previous: Sequence[Look] = (),
) -> Look:
    here = before or around(router_pod())
    return judge(
        answers=answers,
        before=here,
        after=after or here,
        target_uids=frozenset({TARGET.uid}),
        earlier=previous,
        span=(at(0), at(1), 100.0, 101.0),
    )


def test_only_survivors_listed_is_clean() -> None:
    """F1 Withdrawing, no router lists a target member: the look is clean; survivors' rows do not matter."""
    assert look(answer(router_pod(), KEEPER_ROW)).sight is Sight.CLEAN


def test_target_listed_names_router_and_address() -> None:
    """F1 A target that is listed keeps the look unclean, and the reason names router Pod and address."""
    seen = look(answer(router_pod(), KEEPER_ROW, TARGET_ROW))
    assert seen.sight is Sight.LISTED and not seen.withdrawn
    assert "chat-router-0" in seen.reason and TARGET_ROW in seen.reason
    assert seen.listing == (("chat-router-0", TARGET_ROW),)


def test_empty_list_is_a_real_empty_set() -> None:
    """F4 An explicit empty worker list is a real empty set."""
    assert look(answer(router_pod())).sight is Sight.CLEAN


def test_one_router_without_an_answer_makes_the_look_unknown() -> None:
    """F3 One of two routers gives no complete answer: unknown, never empty; the reason says which."""
    one, two = router_pod(0), router_pod(1)
    silent = answer(two, kind=AnswerKind.UNKNOWN, detail="/workers answered 500")
    seen = look(answer(one), silent, before=around(one, two))
    assert seen.sight is Sight.UNKNOWN and "chat-router-1" in seen.reason and "500" in seen.reason


def test_listed_by_one_router_outweighs_the_silence_of_another() -> None:
    """A definite row withdraws the stamp of withdrawal even when another router is unknown."""
    one, two = router_pod(0), router_pod(1)
    silent = answer(two, kind=AnswerKind.UNKNOWN)
    assert look(silent, answer(one, TARGET_ROW), before=around(one, two)).sight is Sight.LISTED


def test_no_router_pod_is_no_evidence() -> None:
    """A look over no router at all proves nothing."""
    assert look(before=around()).sight is Sight.UNKNOWN


def test_router_without_a_running_container_selects_nothing() -> None:
    """A router Pod verified to run nothing before and after the look is no obstacle."""
    starting = router_pod(1, running=False)
    answers = (answer(router_pod()), answer(starting, kind=AnswerKind.NOT_RUNNING))
    assert look(*answers, before=around(router_pod(), starting)).sight is Sight.CLEAN


def test_anything_that_moved_throws_the_look_away() -> None:
    """F10 A router or a member that was replaced, or a router that restarted, during the look makes it unknown."""
    here = around(router_pod())
    moved = [
        around(router_pod(), router_pod(1)),
        around(router_pod(restarts=1)),
        around(router_pod(), pods=(KEEPER, pod(ordinal=1, uid="another"))),
        around(router_pod(), pods=(KEEPER, pod(ordinal=1, ip="10.0.9.9"))),
    ]
    for after in moved:
        assert look(answer(router_pod()), before=here, after=after).sight is Sight.UNKNOWN


def test_row_of_another_live_pod_is_not_the_target() -> None:
    """F5 A row whose address belongs to another live Pod now is not the target; one of nobody is unknown."""
    assert look(answer(router_pod(), KEEPER_ROW)).sight is Sight.CLEAN
    nobody = look(answer(router_pod(), "10.0.7.7:8000"))
    assert nobody.sight is Sight.UNKNOWN and "10.0.7.7:8000" in nobody.reason


@pytest.mark.parametrize(
    ("before", "now", "sight"),
    [
        ({TARGET_ROW: 4.0}, {TARGET_ROW: 4.0}, Sight.CLEAN),
        ({TARGET_ROW: 4.0}, {TARGET_ROW: 5.0}, Sight.LISTED),
        ({}, {TARGET_ROW: 1.0}, Sight.LISTED),
        ({KEEPER_ROW: 1.0}, {KEEPER_ROW: 9.0}, Sight.CLEAN),
    ],
)
def test_growth_of_the_dispatch_counter(
    before: dict[str, float], now: dict[str, float], sight: Sight
) -> None:
    """A dispatch to the target since the look before counts as listed; one to a survivor has no effect."""
    earlier = look(answer(router_pod(), dispatched=before))
    assert look(answer(router_pod(), dispatched=now), previous=[earlier]).sight is sight


def test_router_that_restarted_since_the_look_before() -> None:
    """Counters of a new process began at zero: nothing can be said about growth, so the look is unknown once."""
    earlier = look(answer(router_pod(), dispatched={TARGET_ROW: 9.0}))
    again = router_pod(restarts=1)
    seen = look(answer(again, dispatched={}), before=around(again), previous=[earlier])
    assert seen.sight is Sight.UNKNOWN and "restarted" in seen.reason
    assert (
        look(answer(again, dispatched={}), before=around(again), previous=[earlier, seen]).sight
        is Sight.CLEAN
    )


def test_exact_in_flight_figure_holds_but_does_not_deny_the_withdrawal() -> None:
    """Requests that a router still has open at the target make the look busy: withdrawn, and not yet clean."""
    seen = look(answer(router_pod(), in_flight={TARGET_ROW: 2.0, KEEPER_ROW: 5.0}))
    assert seen.sight is Sight.BUSY and seen.withdrawn and "2 requests" in seen.reason
    assert look(answer(router_pod(), in_flight={TARGET_ROW: 0.0, KEEPER_ROW: 5.0})).sight is Sight.CLEAN


def test_growth_is_seen_across_a_look_that_knew_nothing() -> None:
    """A look that failed between two others hides no dispatch: a router is compared with its own last answer."""
    first = look(answer(router_pod(), dispatched={TARGET_ROW: 5.0}))
    failed = look(answer(router_pod(), kind=AnswerKind.UNKNOWN))
    grown = look(answer(router_pod(), dispatched={TARGET_ROW: 9.0}), previous=[first, failed])
    assert grown.sight is Sight.LISTED


def test_routers_that_all_stand_still_prove_nothing() -> None:
    """When no router runs, nobody can say what is selected."""
    starting = router_pod(running=False)
    seen = look(answer(starting, kind=AnswerKind.NOT_RUNNING), before=around(starting))
    assert seen.sight is Sight.UNKNOWN
