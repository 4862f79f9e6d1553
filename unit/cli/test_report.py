"""The report: what it makes of raw objects, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from controller.cli.report import End, report_deployment, report_retirement
from unit.cli.objects import at, deployment, pod, retirement, stamp

STARTING = {"waiting": {"reason": "ContainerCreating"}}


def phases(md: dict[str, Any], *pods: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(r.title, r.phase, r.detail) for r in report_deployment(md, pods, at(5)).replicas]


@pytest.mark.parametrize(
    ("member", "phase", "detail"),
    [
        (pod(0), "Ready", ""),
        (pod(0, ready=False, state=STARTING, container=""), "Starting", ""),
        (pod(0, ready=False), "Starting", ""),
        (pod(0, ready=False, restarts=1), "NotReady", ""),
        (
            pod(0, ready=False, restarts=3, state={"waiting": {"reason": "CrashLoopBackOff"}}),
            "NotReady",
            "CrashLoopBackOff",
        ),
        (
            pod(0, ready=False, state={"waiting": {"reason": "ImagePullBackOff"}}),
            "Starting",
            "ImagePullBackOff",
        ),
        (
            pod(
                0,
                ready=False,
                phase="Pending",
                conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
            ),
            "Starting",
            "Unschedulable",
        ),
        (pod(0, ready=False, phase="Failed"), "NotReady", "Failed"),
        (pod(0, ready=False, deleted=40), "Leaving", ""),
        (pod(0, size=2), "NotReady", "1 of 2 members"),
    ],
)
def test_health(member: dict[str, Any], phase: str, detail: str) -> None:
    """A replica outside any operation is told by its Pod, with what Kubernetes says about it."""
    assert phases(deployment(replicas=1), member) == [("server/0", phase, detail)]


def test_an_engine_that_was_up_and_is_not_ready_is_not_starting() -> None:
    """Once the startup probe has passed, an engine that is not Ready is NotReady."""
    member = pod(0, ready=False)
    member["status"]["containerStatuses"][0]["started"] = True
    assert phases(deployment(replicas=1), member) == [("server/0", "NotReady", "")]


def test_a_declared_replica_without_a_pod_is_missing() -> None:
    """Every declared ordinal has a line, also while nothing stands there."""
    assert phases(deployment(replicas=2), pod(1)) == [
        ("server/0", "Missing", "no Pod yet"),
        ("server/1", "Ready", ""),
    ]


def test_only_owned_pods_are_looked_at() -> None:
    """A Pod with our labels that another deployment owns is none of ours."""
    assert phases(deployment(replicas=0), pod(0, owner="uid-other")) == []


def test_dropped_roles_and_pods_without_a_seat_come_last() -> None:
    """What the spec does not name is still shown: dropped roles after the declared, strays at the end."""
    found = phases(
        deployment(replicas=1), pod(None, uid="x"), pod(3, role="old", uid="y"), pod(0), pod(12), pod(2)
    )
    assert [title for title, _, _ in found] == ["server/0", "server/2", "server/12", "old/3", "server"]


@pytest.mark.parametrize(
    "state", ["Admitted", "Disqualified", "Withdrawing", "Draining", "Deleting", "Settling"]
)
def test_the_target_is_retiring(state: str) -> None:
    """The replica of a running operation carries its state, whatever its Pod says."""
    md = deployment(replicas=1, retirement=retirement(state))
    assert phases(md, pod(0), pod(1, deleted=60)) == [
        ("server/0", "Ready", ""),
        ("server/1", f"Retiring {state}", ""),
    ]


def test_a_target_whose_pods_are_gone_keeps_its_line() -> None:
    """In Settling the seat is still taken: the replica stays in the list without a Pod."""
    md = deployment(replicas=1, retirement=retirement("Settling"))
    assert phases(md, pod(0)) == [("server/0", "Ready", ""), ("server/1", "Retiring Settling", "")]


def test_another_incarnation_at_the_ordinal_is_not_the_target() -> None:
    """Targets are UIDs: a new Pod under the old name is a replica of its own."""
    md = deployment(replicas=1, retirement=retirement("Draining"))
    assert phases(md, pod(0), pod(1, uid="uid-new"))[1] == ("server/1", "Ready", "")


@pytest.mark.parametrize(
    ("member", "phase"),
    [
        (pod(1), "Aborted (serving)"),
        (pod(1, eligible=False), "Aborted (not serving)"),
        (pod(1, ready=False), "Aborted (not serving)"),
        (pod(1, deleted=30), "Leaving"),
    ],
)
def test_an_aborted_replica_says_whether_it_serves(member: dict[str, Any], phase: str) -> None:
    """An aborted replica serves when it is Ready and labelled; deleted by somebody, it leaves."""
    md = deployment(replicas=1, retirement=retirement("Aborted"))
    assert phases(md, pod(0), member)[1][1] == phase


@pytest.mark.parametrize(
    ("operation", "now", "waited", "left", "total", "end"),
    [
        (retirement("Admitted"), 4, 4, 26, 30, End.ABORTED),
        (retirement("Disqualified"), 4, 4, 26, 30, End.ABORTED),
        (retirement("Withdrawing"), 29, 29, 1, 30, End.ABORTED),
        (retirement("Draining", phase_started=7), 11, 4, 236, 240, End.ABORTED),
        # The operation ends before the phase would.
        (retirement("Draining", phase_started=100), 110, 10, 190, 200, End.ABORTED),
        (retirement("Settling", phase_started=280), 290, 10, 20, 30, End.DEPARTING),
        # No delete has been taken yet: only the deadline ends it.
        (retirement("Deleting", phase_started=20), 21, 1, 279, 280, End.ABORTED),
    ],
)
def test_budgets(
    operation: dict[str, Any], now: float, waited: float, left: float, total: float, end: End
) -> None:
    """Each state has the budget of its step, cut to the deadline where the deadline counts."""
    report = report_retirement(deployment(retirement=operation), at(now), [pod(1)])
    assert report is not None
    assert report.phase is not None
    assert (report.phase.waited, report.phase.left, report.phase.total, report.end) == (
        waited,
        left,
        total,
        end,
    )


def test_a_delete_on_its_way_ends_after_the_grace_of_its_pods() -> None:
    """While deleting, the latest deletion timestamp (grace included) plus a minute is the end."""
    md = deployment(retirement=retirement("Deleting", phase_started=20))
    report = report_retirement(md, at(25), [pod(1, deleted=52)])
    assert report is not None
    assert report.phase is not None
    assert report.phase.ends == at(112)
    assert report.end is End.DEPARTING
    assert report.whole is None


def test_a_successors_deletion_is_not_the_targets() -> None:
    """The deletion timestamp of another Pod under the target's name says nothing about the target."""
    md = deployment(retirement=retirement("Deleting", phase_started=20))
    report = report_retirement(md, at(25), [pod(1, uid="uid-new", deleted=9000)])
    assert report is not None
    assert report.phase is not None
    assert report.phase.ends == at(300)
    assert report.targets[0].now == "gone; another Pod has its name"


def test_a_budget_is_spent_at_its_end() -> None:
    """Equality is spent, and nothing is left below zero afterwards."""
    md = deployment(retirement=retirement("Draining", phase_started=7))
    for now, spent in ((246.999, False), (247, True), (400, True)):
        report = report_retirement(md, at(now))
        assert report is not None
        assert report.phase is not None
        assert report.phase.spent is spent
        assert report.phase.left >= 0


def test_an_aborted_operation_waits_for_nothing() -> None:
    """Nothing comes by itself after an abort, so no budget is shown."""
    report = report_retirement(deployment(retirement=retirement("Aborted")), at(400))
    assert report is not None
    assert (report.phase, report.whole, report.end) == (None, None, None)


@pytest.mark.parametrize(
    ("member", "now"),
    [
        (pod(1), "running"),
        (pod(1, deleted=40), "terminating"),
        (pod(1, container="containerd://two", restarts=1), "restarted since admission"),
        (pod(1, state={"waiting": {"reason": "CrashLoopBackOff"}}), "not running"),
        (pod(1, uid="uid-new"), "gone; another Pod has its name"),
        (pod(0), "gone"),
    ],
)
def test_what_stands_at_a_target_now(member: dict[str, Any], now: str) -> None:
    """Each member of the target is compared with what was recorded at admission."""
    report = report_retirement(deployment(retirement=retirement("Draining")), at(9), [member])
    assert report is not None
    assert report.targets[0].now == now


def test_unknown_in_flight_stays_unknown() -> None:
    """A figure that was not read is None, an observed zero is 0."""
    cases: list[tuple[dict[str, Any], int | None]] = [
        ({}, None),
        ({"inFlight": 0, "lastReadAt": stamp(3)}, 0),
    ]
    for stored, found in cases:
        report = report_retirement(deployment(retirement=retirement("Draining", **stored)), at(9))
        assert report is not None
        assert report.in_flight == found


def test_no_operation_is_no_report() -> None:
    """Without status.retirement there is nothing to tell."""
    assert report_retirement(deployment(), at(0)) is None


def test_a_state_of_a_newer_version_is_said_and_not_guessed() -> None:
    """An operation that this version cannot read is an error that names the object."""
    with pytest.raises(ValueError, match=r"status.retirement of prod/chat .* 'Hibernating'"):
        report_retirement(deployment(retirement=retirement("Hibernating")), at(0))


def test_the_deployment_around_it() -> None:
    """Phase, endpoint, age, late departures and conditions that are not True are reported."""
    md = deployment(
        departing=[
            {
                "roleName": "server",
                "replicaOrdinal": 0,
                "uids": ["u"],
                "reason": "its node is gone",
                "since": stamp(0),
            }
        ],
        conditions=[
            {"type": "Ready", "status": "True", "reason": "Ready", "message": "fine"},
            {"type": "RolesReady", "status": "False", "reason": "CreateRefused", "message": "quota"},
        ],
    )
    report = report_deployment(md, [], at(0))
    assert (report.phase, report.engine, report.endpoint, report.age) == (
        "Ready",
        "vLLM",
        "http://chat-router.prod.svc:8081",
        7500,
    )
    assert [(d.title, d.reason, d.since) for d in report.departing] == [
        ("server/0", "its node is gone", at(0))
    ]
    assert [c.type for c in report.conditions] == ["RolesReady"]
    assert report.retirement is None


def test_a_deployment_the_controller_has_not_seen_yet() -> None:
    """Without a status everything is unknown, nothing is made up."""
    md = deployment(replicas=1)
    del md["status"]
    report = report_deployment(md, [], at(0))
    assert (report.phase, report.endpoint, report.retirement) == ("Unknown", "", None)
    assert [r.phase for r in report.replicas] == ["Missing"]
