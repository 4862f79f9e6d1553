"""Which seats are filled, and which are left empty."""

from __future__ import annotations

from controller.seats import plan_seats
from controller.snapshot import Seat
from unit.builders import START, pod

NOBODY: frozenset[Seat] = frozenset()


def hash_of(seat: Seat) -> str:
    return "current"


def with_hash(value: str, **changes: object) -> object:
    found = pod(**changes)  # type: ignore[arg-type]
    found.raw["metadata"]["annotations"]["ebb.dev/pod-hash"] = value
    return found


def test_missing_seats_are_created() -> None:
    """Every declared seat without a Pod is filled, and none beyond."""
    plan = plan_seats(replicas={"server": 3}, pods=[pod(ordinal=1)], reserved=NOBODY, hash_of=hash_of)
    assert plan.create == (Seat("server", 0, 0), Seat("server", 2, 0))


def test_reserved_seat_stays_empty() -> None:
    """B8 A reserved ordinal is not filled though the spec declares it."""
    reserved = frozenset({Seat("server", 1, 0)})
    plan = plan_seats(replicas={"server": 2}, pods=[pod()], reserved=reserved, hash_of=hash_of)
    assert plan.create == ()


def test_leaving_pod_holds_its_seat() -> None:
    """A terminating Pod holds the name of its seat: nothing is created beside it."""
    leaving = pod(deleted_at=START)
    plan = plan_seats(replicas={"server": 1}, pods=[leaving], reserved=NOBODY, hash_of=hash_of)
    assert plan.create == () and plan.outdated == ()


def test_ended_pod_is_cleaned_up_before_its_seat_is_filled() -> None:
    """A Pod that ended is deleted; its successor comes once the name is free."""
    ended = pod(phase="Failed")
    plan = plan_seats(replicas={"server": 1}, pods=[ended], reserved=NOBODY, hash_of=hash_of)
    assert plan.clean_up == (ended,) and plan.create == ()


def test_outdated_is_what_its_seat_no_longer_renders() -> None:
    """Only live Pods of declared seats with another hash are outdated."""
    old, new = with_hash("earlier", ordinal=0), with_hash("current", ordinal=1)
    beyond = with_hash("earlier", ordinal=5)
    plan = plan_seats(
        replicas={"server": 2},
        pods=[old, new, beyond],  # type: ignore[list-item]
        reserved=NOBODY,
        hash_of=hash_of,
    )
    assert plan.outdated == (old,)
