"""The checker of the invariants: it passes what the protocol does, and finds each breach of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from apis.v1alpha1 import labels
from controller.clock import format_time
from unit.builders import START
from unit.invariants import ApiWrite, violations

Story = list[ApiWrite]
UID: Final = "uid-server-1"
TARGET: Final = "chat-server-r1-m0"


def write(verb: str, resource: str, name: str, *, at: float, code: int = 200, **fields: Any) -> ApiWrite:
    return ApiWrite(
        verb=verb,
        resource=resource,
        namespace="default",
        name=name,
        code=code,
        at=START + timedelta(seconds=at),
        **fields,
    )


def stored(state: str, *, at: float, departing: Sequence[str] = (), **fields: Any) -> ApiWrite:
    """A status that was replaced; state "" is a cleared record."""
    record = {
        "state": state,
        "startedAt": format_time(START),
        "deadline": format_time(START + timedelta(seconds=300)),
        "targetMembers": [{"uid": UID, "name": TARGET}],
        "evidenceAt": format_time(START + timedelta(seconds=8)),
        **fields,
    }
    status: dict[str, Any] = {"retirement": record} if state else {}
    if departing:
        status["departing"] = [{"roleName": "server", "replicaOrdinal": 1, "uids": list(departing)}]
    body = {"metadata": {"name": "chat", "resourceVersion": "7"}, "status": status}
    return write("update", labels.PLURAL, "chat", subresource="status", body=body, at=at)


def label(value: str | None, *, at: float) -> ApiWrite:
    changed = {"uid": UID, "labels": {labels.ENDPOINT_ELIGIBLE: value}}
    return write("patch", "pods", TARGET, body={"metadata": changed}, at=at)


def delete(*, at: float, code: int = 200, uid: str = UID, **more: Any) -> ApiWrite:
    preconditions = {"uid": uid} if uid else {}
    return write("delete", "pods", TARGET, body={"preconditions": preconditions, **more}, code=code, at=at)


def story() -> Story:
    """A retirement as it should be."""
    return [
        stored("Admitted", at=0),
        label(None, at=0),
        stored("Disqualified", at=0),
        stored("Withdrawing", at=0),
        stored("Draining", at=6),
        stored("Deleting", at=8.3),
        delete(at=8.4),
        stored("Settling", at=15),
        stored("", at=15),
    ]


def retried() -> ApiWrite:
    """A person's retry of one that was given up: fresh clocks under a new token."""
    later = format_time(START + timedelta(seconds=60))
    return stored("Admitted", at=60, startedAt=later, lastConsumedToken="token")


LABEL, DRAINING, DELETING, DELETE, SETTLING, CLEARED = 1, 4, 5, 6, 7, 8
"""Places in the story."""


def put(place: int, *writes: ApiWrite) -> Callable[[Story], Story]:
    """The story with these writes in the place of one."""
    return lambda told: [*told[:place], *writes, *told[place + 1 :]]


def test_retirement_as_it_should_be() -> None:
    """The straight path breaks nothing, and neither does a second one after it."""
    assert violations(story() + story()) == []


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (put(DELETE, delete(at=8.4, uid="")), "S1 chat-server-r1-m0 was to be deleted without a UID"),
        (put(DELETE, delete(at=8.4, uid="uid-other")), "S1 .* its UID uid-other is no target"),
        (put(DELETE, delete(at=8.4, gracePeriodSeconds=0)), "S1 .* grace of the controller's own choice"),
        (put(DELETING, delete(at=8.3), stored("Deleting", at=8.3)), "S2 .* deleted in state Draining"),
        (put(DELETING, stored("Deleting", at=20)), "S2 Deleting was stored on evidence that was 12.0 s old"),
        (
            put(DELETING, stored("Deleting", at=8.3, evidenceAt=None)),
            "S2 Deleting was stored without evidence",
        ),
        (put(DELETE, delete(at=25)), "S2 the first delete was sent on evidence that was 17.0 s old"),
        (put(DELETE, delete(at=9, code=403), delete(at=25)), "S2 the first delete was sent on evidence"),
        (put(LABEL), "S2 an operation left Admitted while the eligibility label was on a target"),
        (put(0, label(None, at=0), stored("Admitted", at=0)), "S2 .* lost its eligibility label without"),
        (put(DRAINING, stored("Draining", at=6, startedAt="later")), "S4 startedAt moved from .* to later"),
        (put(DRAINING, stored("Draining", at=6, deadline="never")), "S4 deadline moved from .* to never"),
        (put(DRAINING), "S5 an operation went from Withdrawing to Deleting"),
        (put(SETTLING, stored("Draining", at=9)), "S5 an operation went from Deleting to Draining"),
        (put(0, stored("Draining", at=0)), "S5 an operation began in state Draining"),
        (put(SETTLING, stored("Aborted", at=9)), "S5 an operation was aborted after a delete"),
        (put(SETTLING, stored("", at=9)), "S5 an operation was dropped in Deleting after a delete"),
        (put(DRAINING, label("true", at=6)), "S5 .* offered to service again in state Withdrawing"),
        (put(DRAINING, stored("Aborted", at=6), stored("Draining", at=7)), "S5 an aborted operation went on"),
        (
            put(CLEARED, write("create", "pods", TARGET, code=201, at=15)),
            "S6 chat-server-r1-m0 was created again while its seat was reserved",
        ),
        (
            put(DRAINING, delete(at=6, preconditions={"uid": UID, "resourceVersion": "7"})),
            "S6 the target chat-server-r1-m0 was to be cleaned up beside its operation",
        ),
        (
            put(LABEL, write("patch", "pods", TARGET, body={"metadata": {}}, at=0)),
            "S9 .* patched without a UID",
        ),
    ],
)
def test_each_breach_is_found(spoil: Callable[[Story], Story], says: str) -> None:
    """A story that is spoilt in one place is told with the invariant that it breaks."""
    found = violations(spoil(story()))
    assert any(re.search(says, breach) for breach in found), found


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(
            [*story()[:DELETE], delete(at=9, code=0), delete(at=40)], id="a first delete nobody answered"
        ),
        pytest.param([*story()[:DELETE], delete(at=9, code=403), stored("Aborted", at=300)], id="refused"),
        pytest.param([*story()[:DELETE], *story()[SETTLING:]], id="deleted by somebody else"),
        pytest.param([*story()[:SETTLING], stored("", at=120, departing=[UID])], id="late"),
        pytest.param([*story()[:DRAINING], stored("", at=6), label("true", at=6)], id="cancelled"),
        pytest.param([*story()[:DRAINING], stored("Aborted", at=30), label("true", at=30)], id="given up"),
        pytest.param([*story()[:DRAINING], stored("Aborted", at=30), retried()], id="retried"),
    ],
)
def test_other_ends_break_nothing(told: Story) -> None:
    """What the protocol allows besides the straight path."""
    assert violations(told) == []


def test_deployment_that_is_deleted() -> None:
    """Once somebody has deleted the deployment its Pods leave by UID alone, and its record is dropped."""
    gone = write("delete", labels.PLURAL, "chat", own=False, at=7)
    told = [*story()[: DRAINING + 1], gone, delete(at=8), stored("", at=8)]
    assert violations(told) == []
    assert violations([told[-2], *told[:-2]]) != []
    again = write("create", labels.PLURAL, "chat", own=False, code=201, at=20)
    assert violations([*told, again, delete(at=21)]) != [], "a new deployment of the name starts anew"


def test_others_are_not_judged() -> None:
    """What somebody else does to Pods is no breach of the controller's."""
    assert violations([replace(delete(at=0, uid=""), own=False)]) == []
    assert violations([write("update", labels.PLURAL, "chat", subresource="status", at=0)]) != []


def rolling(phase: str, *, at: float) -> ApiWrite:
    """A status with a slot of a rollout and no operation."""
    slot = {"roleName": "server", "replicaOrdinal": 1, "uids": [UID], "phase": phase}
    body = {"metadata": {"name": "chat", "resourceVersion": "7"}, "status": {"rollout": [slot]}}
    return write("update", labels.PLURAL, "chat", subresource="status", body=body, at=at)


def test_rollout_deletes_what_its_slot_names() -> None:
    """A delete for a successor is sound once its slot is stored, and not before, nor after the Pod has gone."""
    assert violations([rolling("Leaving", at=0), delete(at=1)]) == []
    for spoilt in ([delete(at=0)], [rolling("Leaving", at=0), rolling("Starting", at=1), delete(at=2)]):
        assert [breach[:2] for breach in violations(spoilt)] == ["S1"]


def test_rollout_leaves_a_target_alone() -> None:
    """The target of an operation is deleted by that alone, also when a slot names it."""
    beside = stored("Admitted", at=0)
    slot = rolling("Leaving", at=0).body["status"]
    beside = replace(beside, body={**beside.body, "status": {**beside.body["status"], **slot}})
    assert [breach[:2] for breach in violations([beside, delete(at=1)])] == ["S2"]
