"""The plain lines: whole outputs, so that a change of what people read is a change of a test."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.cli.report import Budget, report_deployment
from controller.cli.text import (
    age_text,
    budget_text,
    render_retirement_line,
    short_id,
    status_lines,
    table,
    why_lines,
)
from unit.cli.objects import T0, at, deployment, pod, retirement, stamp


def status_of(md: dict[str, Any], *pods: dict[str, Any], now: float) -> list[str]:
    return list(status_lines([report_deployment(md, pods, at(now))]))


def why_of(md: dict[str, Any], *pods: dict[str, Any], now: float) -> list[str]:
    return list(why_lines(report_deployment(md, pods, at(now))))


DRAINING = retirement(
    "Draining",
    phase_started=7,
    inFlight=3,
    lastReadAt=stamp(9),
    withdrawnSince=stamp(2),
    reason="server/1 holds 3 in flight",
)


@pytest.mark.parametrize(
    ("operation", "now", "line"),
    [
        (
            retirement("Admitted"),
            4,
            "Admitted      not read yet    4 s in, 26 s left of 30 s       the reason",
        ),
        (
            DRAINING,
            11,
            "Draining      3 in flight     4 s in, 236 s left of 240 s     server/1 holds 3 in flight",
        ),
        (
            retirement("Draining", phase_started=7, lastReadAt=stamp(9)),
            300,
            "Draining      unknown         293 s in, all of 240 s spent    the reason",
        ),
        (
            retirement("Settling", phase_started=20, inFlight=0, lastReadAt=stamp(9)),
            21,
            "Settling      0 in flight     1 s in, 29 s left of 30 s       the reason",
        ),
        (
            retirement("Aborted", inFlight=3, lastReadAt=stamp(9)),
            300,
            "Aborted       3 in flight                                     the reason",
        ),
    ],
)
def test_one_line(operation: dict[str, Any], now: float, line: str) -> None:
    """The line of the demo: state, in flight, budget, sentence, in columns."""
    assert render_retirement_line(deployment(retirement=operation), at(now)) == line


def test_no_operation_is_no_line() -> None:
    """Without an operation there is nothing to say."""
    assert render_retirement_line(deployment(), at(0)) == ""


@given(st.floats(min_value=0, max_value=20000, allow_nan=False), st.integers(min_value=1, max_value=14400))
def test_a_budget_adds_up(elapsed: float, total: int) -> None:
    """Waited and left add up to the whole, and nothing is called spent before it is."""
    budget = Budget(began=T0, ends=at(total), now=T0 + timedelta(seconds=elapsed))
    text = budget_text(budget)
    if budget.spent:
        assert text.endswith(f"all of {total} s spent")
        return
    waited, left = (int(part.split()[0]) for part in text.split(", "))
    assert waited + left == total
    assert left >= 1


def test_clocks_that_disagree_by_a_moment_do_not_show_negative_seconds() -> None:
    """A report taken just before the stored start (the server's time is known to a second) says 0 s in."""
    assert budget_text(Budget(began=T0, ends=at(30), now=at(-0.7))) == "0 s in, 30 s left of 30 s"


def test_status_of_a_deployment_at_rest() -> None:
    """At rest: one line for the deployment, one a replica, and nothing else."""
    assert status_of(deployment(), pod(0), pod(1), now=0) == [
        "prod/chat  Ready  vLLM  1R2S  http://chat-router.prod.svc:8081  2h",
        "  REPLICA   PHASE  POD                NODE    AGE",
        "  server/0  Ready  chat-server-r0-m0  node-1  10m",
        "  server/1  Ready  chat-server-r1-m0  node-1  10m",
    ]


def test_status_while_a_replica_drains() -> None:
    """While one leaves: in flight as of its read, the phase and the whole, and the sentence."""
    assert status_of(deployment(replicas=1, retirement=DRAINING), pod(0), pod(1), now=11) == [
        "prod/chat  Ready  vLLM  1R2S  http://chat-router.prod.svc:8081  2h",
        "  REPLICA   PHASE              POD                NODE    AGE",
        "  server/0  Ready              chat-server-r0-m0  node-1  10m",
        "  server/1  Retiring Draining  chat-server-r1-m0  node-1  10m",
        "  retiring server/1: Draining, 3 in flight, read 2 s ago",
        "    draining: 4 s in, 236 s left of 240 s",
        "    in all: 11 s in, 289 s left of 300 s",
        "    server/1 holds 3 in flight",
    ]


def test_status_names_members_troubles_departures_and_conditions() -> None:
    """A replica of several Pods has a line each; what is not as it should be stands below with its message."""
    md = deployment(
        replicas=2,
        endpoint="",
        departing=[{"roleName": "server", "replicaOrdinal": 4, "reason": "late", "since": stamp(0)}],
        conditions=[{"type": "RolesReady", "status": "False", "reason": "NotReady", "message": "server 0/2"}],
    )
    stuck = pod(0, member=1, size=2, ready=False, state={"waiting": {"reason": "ImagePullBackOff"}})
    assert status_of(md, pod(0, size=2), stuck, now=60)[:1] == [
        "prod/chat  Ready  vLLM  1R2S  no endpoint yet  2h"
    ]
    assert status_of(md, pod(0, size=2), stuck, now=60)[2:] == [
        "  server/0  Starting: ImagePullBackOff  chat-server-r0-m0  node-1  11m",
        "                                        chat-server-r0-m1  node-1  11m",
        "  server/1  Missing: no Pod yet         -                  -       -",
        "  departing server/4: late, since 12:00:00Z (60 s ago)",
        "  RolesReady=False NotReady: server 0/2",
    ]


def test_status_of_an_aborted_replica() -> None:
    """After an abort the sentence stays, and no budget pretends to run."""
    md = deployment(replicas=1, retirement=retirement("Aborted", reason="draining did not finish"))
    assert status_of(md, pod(0), pod(1), now=900)[3:] == [
        "  server/1  Aborted (serving)  chat-server-r1-m0  node-1  25m",
        "  retirement of server/1: Aborted: draining did not finish",
    ]


def test_several_deployments_are_set_apart() -> None:
    """An empty line stands between two deployments."""
    reports = [report_deployment(deployment(replicas=0), [], at(0)) for _ in range(2)]
    lines = list(status_lines(reports))
    assert [lines[0], "", lines[0]] == [lines[0], *lines[2:4]]


def test_why_while_draining() -> None:
    """Why: the state, the sentence, the evidence, who exactly, both budgets, and what comes at their end."""
    assert why_of(deployment(replicas=1, retirement=DRAINING), pod(0), pod(1), now=11) == [
        "prod/chat: server/1 is leaving (ReplicasReduced): Draining",
        "  server/1 holds 3 in flight",
        "",
        "What is done   every router and its engine are read until two reads in a row are idle",
        "Evidence",
        "  withdrawn  no router has listed it since 12:00:02Z (9 s ago)",
        "  in flight  3 in flight, as of 12:00:09Z (2 s ago)",
        "  idle       not seen twice in a row",
        "Members at admission",
        "  POD                UID    CONTAINER  RESTARTS  NOW",
        "  chat-server-r1-m0  uid-1  one        0         running",
        "Until when",
        "  draining             began 12:00:07Z  ends 12:04:07Z  4 s in, 236 s left of 240 s",
        "  the whole operation  began 12:00:00Z  ends 12:05:00Z  11 s in, 289 s left of 300 s",
        "What comes     if this step is not done by 12:04:07Z: Aborted, the replica is kept and serves again",
    ]


def test_why_while_a_delete_is_on_its_way() -> None:
    """While deleting: the evidence it rests on, and that nothing is forced when it is late."""
    operation = retirement(
        "Deleting",
        phase_started=20,
        withdrawnSince=stamp(2),
        evidenceAt=stamp(18),
        inFlight=0,
        lastReadAt=stamp(18),
    )
    lines = why_of(deployment(replicas=1, retirement=operation), pod(0), pod(1, deleted=52), now=25)
    assert lines[4:] == [
        "Evidence",
        "  withdrawn  no router has listed it since 12:00:02Z (23 s ago)",
        "  in flight  0 in flight, as of 12:00:18Z (7 s ago)",
        "  idle       twice in a row, the second round begun 12:00:18Z (7 s ago)",
        "Members at admission",
        "  POD                UID    CONTAINER  RESTARTS  NOW",
        "  chat-server-r1-m0  uid-1  one        0         terminating",
        "Until when",
        "  deleting  began 12:00:20Z  ends 12:01:52Z  5 s in, 87 s left of 92 s",
        "What comes     if it is not gone by 12:01:52Z: recorded as departing with its seat reserved, nothing forced",
    ]


def test_why_of_an_aborted_replica_prints_the_way_out() -> None:
    """After an abort: the command that deletes it all the same, with the Pod's name, and the other way."""
    md = deployment(replicas=1, retirement=retirement("Aborted"))
    lines = why_of(md, pod(0), pod(1), now=900)
    assert lines[0] == "prod/chat: server/1 was to leave and is kept (ReplicasReduced): Aborted"
    assert "Until when" not in lines
    assert lines[-4:] == [
        "What comes     nothing by itself: it stays, and it serves for as long as it is Ready",
        "Way out        wait until it is idle, or accept that its requests are cut, and delete it:",
        "                 kubectl delete pod -n prod chat-server-r1-m0",
        "               or raise the replicas of role server again, and it stays for good",
    ]


def test_why_never_names_a_successor_for_deletion() -> None:
    """The way out names only Pods that are still the ones recorded at admission."""
    md = deployment(replicas=1, retirement=retirement("Aborted"))
    assert not any("kubectl delete" in line for line in why_of(md, pod(1, uid="uid-new"), now=900))


def test_why_before_anything_was_seen() -> None:
    """What was not seen is said to be not seen; nothing reads as idle."""
    lines = why_of(deployment(replicas=1, retirement=retirement("Admitted")), pod(1), now=1)
    assert lines[4:8] == [
        "Evidence",
        "  withdrawn  not seen yet",
        "  in flight  not read yet",
        "  idle       not seen twice in a row",
    ]


def test_why_of_a_deployment_at_rest() -> None:
    """With nothing leaving, that is the answer."""
    assert why_of(deployment(), pod(0), pod(1), now=0) == ["prod/chat: no replica is being retired."]


def test_why_tells_what_waits_without_an_operation() -> None:
    """A removal that has not begun is told by its condition."""
    waiting = {
        "type": "RemovalsSettled",
        "status": "False",
        "reason": "WouldEmptyEndpoint",
        "message": "server/1 is the last replica that serves behind role server",
    }
    assert why_of(deployment(conditions=[waiting]), pod(1), now=0) == [
        "prod/chat: no replica is being retired.",
        "RemovalsSettled is False, WouldEmptyEndpoint: server/1 is the last replica that serves behind role server",
    ]


def test_why_of_a_replica_that_is_late_to_go() -> None:
    """A deleted replica that is late is named with its reason."""
    entry = {"roleName": "server", "replicaOrdinal": 1, "reason": "60 s past its deletion", "since": stamp(0)}
    assert why_of(deployment(departing=[entry]), now=60) == [
        "prod/chat: server/1 is deleted and late to go since 12:00:00Z (60 s ago): 60 s past its deletion",
        "  Its seat stays reserved until its Pods are gone; nothing is forced.",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, ""), (0, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172800, "2d")],
)
def test_ages(seconds: float | None, text: str) -> None:
    """Ages are written as kubectl writes them."""
    assert age_text(seconds) == text


def test_container_ids_are_cut() -> None:
    """A container ID is shown without its scheme, in the length that people compare; none is a dash."""
    assert short_id("containerd://0123456789abcdef") == "0123456789ab"
    assert short_id("") == "-"


def test_tables_line_up() -> None:
    """Columns are as wide as their widest cell, without trailing blanks."""
    assert list(table([("A", "B"), ("long", ""), ("x", "y")])) == ["A     B", "long", "x     y"]
