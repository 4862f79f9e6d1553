"""A report in plain lines: no colour, no width, the same on a terminal, in a log and in a test.

Times are the API server's, in UTC; "ago" and "left" are counted from the moment of the report.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from controller.cli.report import (
    Budget,
    DeploymentReport,
    End,
    RetirementReport,
    report_retirement,
)
from controller.retirement_planner import budgets
from controller.retirement_planner.state import State
from controller.snapshot import Raw

DOING: Final = {
    State.ADMITTED: "its seat is reserved; the label that makes it eligible is being taken off",
    State.DISQUALIFIED: "it is no longer eligible; every router is being asked to drop it",
    State.WITHDRAWING: "every router is looked at until two looks in a row show that none has it",
    State.DRAINING: "every router and its engine are read until two reads in a row are idle",
    State.DELETING: "its Pods are being deleted, each by its UID",
    State.SETTLING: "its Pods are gone; the capacity they held is being given back",
    State.COMPLETED: "it has left",
    State.ABORTED: "the removal was given up; the replica is kept and offered to service",
}
"""What the controller does in each state, in one clause about the replica."""


def render_retirement_line(md: Raw, now: datetime, pods: Sequence[Raw] = ()) -> str:
    """The operation in one line: state, in flight, how long in and left, the sentence; "" when there is none.

    `Draining      3 in flight     4 s in, 236 s left of 240 s      server/1 holds 3 in flight`
    """
    report = report_retirement(md, now, pods)
    return "" if report is None else retirement_line(report)


def retirement_line(report: RetirementReport) -> str:
    budget = "" if report.phase is None else budget_text(report.phase)
    return f"{report.state:<12}  {in_flight_text(report):<14}  {budget:<30}  {report.reason}".rstrip()


def in_flight_text(report: RetirementReport) -> str:
    """Unknown is never zero: what was not read is said to be so."""
    if report.in_flight is not None:
        return f"{report.in_flight} in flight"
    return "not read yet" if report.last_read_at is None else "unknown"


def budget_text(budget: Budget) -> str:
    """`4 s in, 236 s left of 240 s`: whole seconds that add up, and never "0 s left" before it is spent."""
    total = math.ceil(budget.total)
    if budget.spent:
        return f"{math.floor(budget.waited)} s in, all of {total} s spent"
    left = min(total, math.ceil(budget.left))
    return f"{total - left} s in, {left} s left of {total} s"


# --- ebb status -----------------------------------------------------------------------------------------


def status_lines(reports: Sequence[DeploymentReport]) -> Iterator[str]:
    """All deployments, an empty line between two."""
    for position, report in enumerate(reports):
        if position:
            yield ""
        yield from deployment_lines(report)


def deployment_lines(report: DeploymentReport) -> Iterator[str]:
    heading = [f"{report.namespace}/{report.name}", report.phase, report.engine, report.role_summary]
    heading += [report.endpoint or "no endpoint yet", age_text(report.age)]
    yield "  ".join(part for part in heading if part)

    rows = [("REPLICA", "PHASE", "POD", "NODE", "AGE")]
    for replica in report.replicas:
        phase = f"{replica.phase}: {replica.detail}" if replica.detail else replica.phase
        rows += [
            # A replica's own columns stand once, on the line of its first Pod.
            (replica.title if first else "", phase if first else "", m.pod, m.node or "-", age_text(m.age))
            for first, m in ((m is replica.members[0], m) for m in replica.members)
        ]
        if not replica.members:
            rows.append((replica.title, phase, "-", "-", "-"))
    yield from (f"  {line}" for line in table(rows))

    if report.retirement is not None:
        yield from (f"  {line}" for line in _retirement_block(report.retirement, report.now))
    for departure in report.departing:
        since = "" if departure.since is None else f", since {moment(departure.since, report.now)}"
        yield f"  departing {departure.title}: {departure.reason}{since}"
    for condition in report.conditions:
        yield f"  {condition.type}={condition.status} {condition.reason}: {condition.message}"


def _retirement_block(report: RetirementReport, now: datetime) -> Iterator[str]:
    if report.state is State.ABORTED:
        yield f"retirement of {report.title}: Aborted: {report.reason}"
        return
    read = "" if report.last_read_at is None else f", read {ago(report.last_read_at, now)}"
    yield f"retiring {report.title}: {report.state}, {in_flight_text(report)}{read}"
    if report.phase is not None:
        yield f"  {step_title(report)}: {budget_text(report.phase)}"
    if report.whole is not None:
        yield f"  in all: {budget_text(report.whole)}"
    yield f"  {report.reason}"


# --- ebb why --------------------------------------------------------------------------------------------


def why_lines(report: DeploymentReport) -> Iterator[str]:
    """Why a replica is still here, and until when."""
    name = f"{report.namespace}/{report.name}"
    if report.retirement is not None:
        yield from _why_retirement(report, report.retirement)
    elif not report.departing:
        yield f"{name}: no replica is being retired."
    for departure in report.departing:
        since = "" if departure.since is None else f" since {moment(departure.since, report.now)}"
        yield f"{name}: {departure.title} is deleted and late to go{since}: {departure.reason}"
        yield "  Its seat stays reserved until its Pods are gone; nothing is forced."
    settled = next((c for c in report.conditions if c.type == "RemovalsSettled"), None)
    if settled is not None:
        yield f"RemovalsSettled is {settled.status}, {settled.reason}: {settled.message}"


def _why_retirement(report: DeploymentReport, operation: RetirementReport) -> Iterator[str]:
    now = report.now
    aborted = operation.state is State.ABORTED
    verb = "was to leave and is kept" if aborted else "is leaving"
    yield f"{report.namespace}/{report.name}: {operation.title} {verb} ({operation.cause}): {operation.state}"
    yield f"  {operation.reason}"
    yield ""
    yield f"What is done   {DOING[operation.state]}"
    yield "Evidence"
    yield from (f"  {line}" for line in table(list(_evidence(operation, now))))
    yield "Members at admission"
    rows = [("POD", "UID", "CONTAINER", "RESTARTS", "NOW")]
    rows += [(t.pod, t.uid, short_id(t.container_id), str(t.restart_count), t.now) for t in operation.targets]
    yield from (f"  {line}" for line in table(rows))
    waits = list(_budgets(operation))
    if waits:
        yield "Until when"
        yield from (f"  {line}" for line in table(waits))
    yield from _what_comes(report, operation)


def _evidence(operation: RetirementReport, now: datetime) -> Iterator[tuple[str, str]]:
    if operation.withdrawn_since is not None:
        yield "withdrawn", f"no router has listed it since {moment(operation.withdrawn_since, now)}"
    else:
        yield "withdrawn", "not seen yet"
    if operation.last_read_at is not None:
        yield "in flight", f"{in_flight_text(operation)}, as of {moment(operation.last_read_at, now)}"
    else:
        yield "in flight", "not read yet"
    if operation.evidence_at is not None:
        yield "idle", f"twice in a row, the second round begun {moment(operation.evidence_at, now)}"
    else:
        yield "idle", "not seen twice in a row"


def _budgets(operation: RetirementReport) -> Iterator[tuple[str, ...]]:
    named = ((step_title(operation), operation.phase), ("the whole operation", operation.whole))
    for name, budget in named:
        if budget is not None:
            yield name, f"began {clock(budget.began)}", f"ends {clock(budget.ends)}", budget_text(budget)


def _what_comes(report: DeploymentReport, operation: RetirementReport) -> Iterator[str]:
    if operation.state is State.ABORTED:
        pods = " ".join(target.pod for target in operation.targets if not target.now.startswith("gone"))
        yield "What comes     nothing by itself: it stays, and it serves for as long as it is Ready"
        if pods:
            yield "Way out        wait until it is idle, or accept that its requests are cut, and delete it:"
            yield f"                 kubectl delete pod -n {report.namespace} {pods}"
        yield f"               or raise the replicas of role {operation.role} again, and it stays for good"
    elif operation.phase is not None:
        at = clock(operation.phase.ends)
        yield f"What comes     {_AT_THE_END[operation.end or End.ABORTED].format(at=at)}"


_AT_THE_END: Final = {
    End.ABORTED: "if this step is not done by {at}: Aborted, the replica is kept and serves again",
    End.DEPARTING: "if it is not gone by {at}: recorded as departing with its seat reserved, nothing forced",
}


# --- small parts ----------------------------------------------------------------------------------------


def step_title(operation: RetirementReport) -> str:
    """What the budget of the present step is for; three states share the one of withdrawal."""
    return "withdrawal" if operation.state in budgets.WITHDRAWAL else operation.state.lower()


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns as wide as their widest cell, two spaces apart, no trailing blanks."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def clock(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%H:%M:%SZ")


def ago(when: datetime, now: datetime) -> str:
    return f"{max(0, math.floor((now - when).total_seconds()))} s ago"


def moment(when: datetime, now: datetime) -> str:
    return f"{clock(when)} ({ago(when, now)})"


def age_text(seconds: float | None) -> str:
    """As kubectl writes an age: `45s`, `12m`, `5h`, `3d`; "" when it is not known."""
    if seconds is None:
        return ""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def short_id(container_id: str) -> str:
    """A container ID without its scheme, cut to the length that people compare."""
    return container_id.rpartition("://")[2][:12] or "-"
