"""Which replicas leave, in which order, and which must wait."""

from __future__ import annotations

from controller.retirement_planner.targets import (
    Unhandled,
    Wanted,
    removals,
    would_empty_endpoint,
)
from unit.builders import START, pod

NOBODY: frozenset[str] = frozenset()


def wanted(entry: str = "server", *, routed: bool = True, **replicas: int) -> Wanted:
    return Wanted(replicas=replicas, entry_role=entry, routed=routed)


def titles(found: object) -> list[str]:
    return [removal.title for removal in found.replicas]  # type: ignore[attr-defined]


def test_highest_ordinal_leaves_first() -> None:
    """Three replicas reduced to one leave as ordinal 2, then 1."""
    pods = [pod(ordinal=ordinal) for ordinal in range(3)]
    assert titles(removals(wanted(server=1), pods)) == ["server/2", "server/1"]


def test_roles_leave_in_spec_order() -> None:
    """Removals of several roles come in the order of the spec's roles."""
    pods = [pod("b", 1), pod("a", 1), pod("a", 0), pod("b", 0)]
    assert titles(removals(wanted("b", b=1, a=1), pods)) == ["b/1", "a/1"]


def test_ended_and_leaving_pods_start_nothing() -> None:
    """C3 A terminal replica never starts an operation, nor does one that is being deleted."""
    pods = [pod(ordinal=1, phase="Failed"), pod(ordinal=2, deleted_at=START)]
    found = removals(wanted(server=1), pods)
    assert found.replicas == () and found.unhandled == ()


def test_dropped_role_is_left_and_named() -> None:
    """The Pods of a role that the spec dropped are left standing, with the reason."""
    gone = pod("old", 0)
    assert removals(wanted(server=1), [gone, pod()]).unhandled == ((gone, Unhandled.ROLE_DROPPED),)


def test_pod_without_seat_is_left_and_named() -> None:
    """A Pod of ours whose labels name no seat is never taken for a removal."""
    stray = pod()
    stray.raw["metadata"]["labels"].pop("ebb.dev/replica")
    found = removals(wanted(server=0), [stray])
    assert found.replicas == () and found.unhandled == ((stray, Unhandled.NO_SEAT),)


def test_second_pod_on_a_declared_seat_is_the_surplus() -> None:
    """Two Pods on one declared seat: the one that carries the seat's name stays, the other is named as surplus."""
    own, other = pod(ordinal=0), pod(ordinal=0, uid="other", name="chat-hand-made")
    assert removals(wanted(server=1), [own, other]).unhandled == ((other, Unhandled.SURPLUS),)


def test_replica_of_another_size_is_not_retired() -> None:
    """A replica that was built with several members, or whose size cannot be read, is left and named."""
    for size in ("2", "0", "many"):
        big = pod(ordinal=1, size=size)
        found = removals(wanted(server=1), [pod(), big])
        assert found.replicas == () and found.unhandled == ((big, Unhandled.SEVERAL_MEMBERS),)


class TestWouldEmptyEndpoint:
    def test_last_serving_replica_waits_for_the_one_that_stays(self) -> None:
        """N1 2→1 while ordinal 0 still loads is not admitted; once ordinal 0 is Ready it is."""
        for ready, waits in ((False, True), (True, False)):
            pods = [pod(ordinal=0, ready=ready), pod(ordinal=1)]
            [removal] = removals(wanted(server=1), pods).replicas
            gate = would_empty_endpoint(removal, wanted=wanted(server=1), pods=pods, reserved=NOBODY)
            assert bool(gate) is waits
            if waits:
                assert "server/1 is the last replica that serves" in gate

    def test_nothing_wanted_may_empty(self) -> None:
        """`replicas: 0` takes the last replica away."""
        pods = [pod(ordinal=0)]
        spec = wanted(server=0)
        [removal] = removals(spec, pods).replicas
        assert would_empty_endpoint(removal, wanted=spec, pods=pods, reserved=NOBODY) == ""

    def test_reserved_and_unlabelled_replicas_do_not_serve(self) -> None:
        """A replica that is itself on its way out, or without the label, is no company."""
        pods = [pod(ordinal=0), pod(ordinal=1)]
        spec = wanted(server=1)
        [removal] = removals(spec, pods).replicas
        assert would_empty_endpoint(removal, wanted=spec, pods=pods, reserved=frozenset({"uid-server-0"}))
        pods[0] = pod(ordinal=0, labelled=False)
        assert would_empty_endpoint(removal, wanted=spec, pods=pods, reserved=NOBODY)

    def test_replica_that_does_not_serve_empties_nothing(self) -> None:
        """A replica that is not Ready may leave even when it is the only one."""
        pods = [pod(ordinal=0, ready=False), pod(ordinal=1, ready=False)]
        spec = wanted(server=1)
        [removal] = removals(spec, pods).replicas
        assert would_empty_endpoint(removal, wanted=spec, pods=pods, reserved=NOBODY) == ""

    def test_router_pool_spans_roles(self) -> None:
        """Behind a router a role of 0 still waits while the pool has nothing else and another role is wanted."""
        pods = [pod("a", 0), pod("b", 0, ready=False)]
        spec = wanted("a", a=0, b=1)
        [removal] = removals(spec, pods).replicas
        assert "behind the router" in would_empty_endpoint(removal, wanted=spec, pods=pods, reserved=NOBODY)
        plain = wanted("b", routed=False, a=0, b=1)
        assert would_empty_endpoint(removal, wanted=plain, pods=pods, reserved=NOBODY) == ""
