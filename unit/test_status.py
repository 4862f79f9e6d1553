"""The status: what each condition says, and that nothing is written when nothing changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from apis.v1alpha1.conditions import REASONS, ConditionType, Reason
from apis.v1alpha1.model_deployment import ModelDeploymentSpec
from apis.v1alpha1.status import LONGEST_MESSAGE, ModelDeploymentStatus, RolloutPhase
from controller.pod_renderer.problems import Problem
from controller.retirement_planner.planner import admit
from controller.retirement_planner.state import Operation, Policy, State
from controller.retirement_planner.targets import Removal, Unhandled
from controller.rollout_planner import RolloutPlan, Slot
from controller.snapshot import DeploymentView
from controller.status import Departure, Picture, RouterFacts, compute_status
from unit.builders import DEPLOYMENT_UID, START, at, pod

SPEC = ModelDeploymentSpec.model_validate(
    {
        "model": {"name": "m"},
        "engine": {"name": "vLLM"},
        "roles": [{"name": "server", "replicas": 2, "image": "engine"}],
    }
)
POLICY = Policy.of(
    {
        "withoutRouter": "Hold",
        "withdrawSeconds": 30,
        "drainSeconds": 240,
        "settleSeconds": 30,
        "totalSeconds": 300,
    }
)
NOTHING = RolloutPlan(slots=(), delete=(), sentence="", waits=False)
PODS = (pod(ordinal=0), pod(ordinal=1))


def deployment(status: dict[str, Any] | None = None, **metadata: Any) -> DeploymentView:
    found = {
        "name": "chat",
        "namespace": "default",
        "uid": DEPLOYMENT_UID,
        "generation": 3,
        **metadata,
    }
    spec = SPEC.model_dump(by_alias=True, mode="json")
    return DeploymentView({"metadata": found, "spec": spec, "status": status or {}})


def picture(**changes: Any) -> Picture:
    whole = Picture(
        deployment=deployment(),
        spec=SPEC,
        problems=(),
        pods=PODS,
        outdated=(),
        operation=None,
        departing=(),
        rollout=NOTHING,
        unhandled=(),
        waiting="",
        refused_creates=(),
        router=RouterFacts(desired=1, ready=1),
        endpoint="http://chat-router.default.svc:8081",
    )
    return replace(whole, **changes)


def compute(**changes: Any) -> dict[str, Any]:
    status = compute_status(picture(**changes), at(0).latest)
    ModelDeploymentStatus.model_validate(status)
    return status


def condition(status: dict[str, Any], kind: ConditionType) -> dict[str, Any]:
    found: dict[str, Any] = next(c for c in status["conditions"] if c["type"] == kind)
    return found


def running(state: State) -> Operation:
    operation = admit(Removal("server", 1, (PODS[1],)), policy=POLICY, generation=3, now=at(0))
    return replace(operation, state=state, reason="the engine holds 3 in flight")


def test_whole_and_ready() -> None:
    """Everything Ready: phase, summary, rows and every condition say so."""
    status = compute()
    assert (status["phase"], status["roleSummary"], status["observedGeneration"]) == ("Ready", "1R2S", 3)
    assert status["roles"] == [{"name": "server", "kind": "Server", "desired": 2, "ready": 2, "updated": 2}]
    assert {c["status"] for c in status["conditions"]} == {"True"}
    assert "retirement" not in status and "departing" not in status


def test_unchanged_world_computes_the_same_status() -> None:
    """B7 A pass over a world that did not change computes the very status that is stored, later clock or not."""
    stored = compute(operation=running(State.DRAINING))
    again = compute_status(
        picture(deployment=deployment(stored), operation=running(State.DRAINING)), at(500).latest
    )
    assert again == stored


def test_transition_time_moves_only_with_the_status() -> None:
    """A reason or message may change without moving lastTransitionTime."""
    stored = compute(pods=PODS[:1])
    later = compute_status(picture(deployment=deployment(stored), pods=()), at(60).latest)
    before, after = (condition(s, ConditionType.ROLES_READY) for s in (stored, later))
    assert before["message"] != after["message"]
    assert before["lastTransitionTime"] == after["lastTransitionTime"]


def test_fields_of_a_newer_version_survive() -> None:
    """A status field that this version does not know is carried along."""
    assert compute(deployment=deployment({"futureField": {"a": 1}}))["futureField"] == {"a": 1}


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ({}, "Starting"),
        ({"phase": "Starting", "observedGeneration": 3}, "Starting"),
        ({"phase": "Ready", "observedGeneration": 3}, "Degraded"),
        ({"phase": "Degraded", "observedGeneration": 3}, "Degraded"),
        ({"phase": "Ready", "observedGeneration": 2}, "Starting"),
    ],
)
def test_phase_of_what_is_not_whole(before: dict[str, Any], expected: str) -> None:
    """Degraded is what was whole under this very spec; a new or edited one is starting."""
    assert compute(deployment=deployment(before), pods=PODS[:1])["phase"] == expected


def test_deleting() -> None:
    """A deployment on its way out says so, whatever still serves."""
    gone = deployment(deletionTimestamp="2026-12-01T12:00:00Z")
    assert compute(deployment=gone)["phase"] == "Deleting"


def test_terminating_and_ended_pods_are_no_replicas() -> None:
    """A Pod that is leaving or has ended counts neither as ready nor as updated."""
    status = compute(pods=(PODS[0], pod(ordinal=1, deleted_at=START), pod(ordinal=2, phase="Failed")))
    assert status["roles"][0]["ready"] == 1 and status["roles"][0]["updated"] == 1


@pytest.mark.parametrize(("waits", "reason"), [(False, "RollingOut"), (True, "RolloutWaiting")])
def test_rollout_is_told(waits: bool, reason: str) -> None:
    """A rollout is a condition with the planner's sentence, and its slots stand in the status."""
    slot = Slot("server", 1, ("uid-server-1",), RolloutPhase.LEAVING)
    plan = RolloutPlan(slots=(slot,), delete=(), sentence="server/1 is leaving", waits=waits)
    status = compute(outdated=(PODS[1],), rollout=plan)
    found = condition(status, ConditionType.REPLICAS_UP_TO_DATE)
    assert (found["status"], found["reason"], found["message"]) == ("False", reason, "server/1 is leaving")
    assert [Slot.read(raw) for raw in status["rollout"]] == [slot]
    assert "rollout" not in compute(deployment=deployment(status))


def test_invalid_spec_keeps_the_counts() -> None:
    """An invalid spec: the field path in the condition, and the rows of the Pods that still run."""
    status = compute(spec=None, problems=(Problem("spec.roles[0].image", "is required"),))
    found = condition(status, ConditionType.SPEC_VALID)
    assert found["status"] == "False" and "spec.roles[0].image" in found["message"]
    assert status["roles"][0]["ready"] == 2 and "updated" not in status["roles"][0]


@pytest.mark.parametrize(
    ("problems", "reason"),
    [
        ([Problem("spec.queueName", "later", Reason.NOT_SUPPORTED_YET)], "NotSupportedYet"),
        ([Problem("spec.queueName", "later", Reason.NOT_SUPPORTED_YET), Problem("x", "wrong")], "Invalid"),
    ],
)
def test_spec_that_comes_too_early(problems: list[Problem], reason: str) -> None:
    """What this release does not carry out has a reason of its own, as long as nothing else is wrong."""
    found = condition(compute(spec=None, problems=problems), ConditionType.SPEC_VALID)
    assert (found["status"], found["reason"]) == ("False", reason)
    assert "spec.queueName: later" in found["message"]


def test_replicas_lost_under_an_invalid_spec_are_named() -> None:
    """An invalid spec is not refilled: what is missing is counted against what the spec declares."""
    status = compute(spec=None, problems=(Problem("spec.roles[0].image", "is required"),), pods=PODS[:1])
    found = condition(status, ConditionType.ROLES_READY)
    assert found["status"] == "False" and "server 1/2; lost ones are not made anew" in found["message"]
    assert status["phase"] == "Starting"


def test_refused_create_carries_the_servers_sentence() -> None:
    """What the API server refused is the message."""
    found = condition(compute(refused_creates=("server/1: exceeded quota",)), ConditionType.ROLES_READY)
    assert (found["reason"], found["message"]) == ("CreateRefused", "server/1: exceeded quota")


STRAY = pod(ordinal=7, uid="stray")


@pytest.mark.parametrize(
    ("changes", "reason", "says"),
    [
        ({"operation": running(State.DRAINING)}, Reason.RETIREMENT_RUNNING, "server/1"),
        ({"operation": running(State.ABORTED)}, Reason.RETIREMENT_ABORTED, "3 in flight"),
        ({"waiting": "server/1 is the last one"}, Reason.WOULD_EMPTY_ENDPOINT, "the last one"),
        ({"unhandled": ((STRAY, Unhandled.ROLE_DROPPED),)}, Reason.NOT_SUPPORTED_YET, STRAY.name),
        (
            {"departing": (Departure("server", 1, ("u",), "server/1 is late", "2026-12-01T12:00:00Z"),)},
            Reason.DEPARTURE_STUCK,
            "late",
        ),
    ],
)
def test_what_waits_to_leave_is_named(changes: dict[str, Any], reason: Reason, says: str) -> None:
    """RemovalsSettled says which removal is running, waiting, stuck, given up, or left standing."""
    found = condition(compute(**changes), ConditionType.REMOVALS_SETTLED)
    assert (found["status"], found["reason"]) == ("False", reason) and says in found["message"]


def test_retiring_column() -> None:
    """The printed column shows `role/ordinal state`, and is gone with the operation."""
    assert compute(operation=running(State.DRAINING))["retiring"] == "server/1 Draining"
    assert "retiring" not in compute()


def test_every_reason_belongs_to_its_condition() -> None:
    """A condition carries only reasons that are documented for it."""
    variants = [
        compute(),
        compute(pods=(), router=RouterFacts(desired=1, ready=0)),
        compute(deployment=deployment(annotations={"ebb.dev/paused": "true"}), outdated=PODS),
        compute(refused_creates=("no",), problems=(Problem("x", "y"),), spec=None),
        compute(operation=running(State.ABORTED)),
        compute(rollout=RolloutPlan((), (), "server/1 waits", waits=True)),
        compute(rollout=RolloutPlan((), (), "server/1 is leaving", waits=False)),
    ]
    for status in variants:
        for found in status["conditions"]:
            assert found["reason"] in REASONS[found["type"]]


def test_long_message_fits() -> None:
    """A thousand names do not make the status unwritable."""
    many = tuple((pod(ordinal=n, uid=str(n)), Unhandled.ROLE_DROPPED) for n in range(2000))
    found = condition(compute(unhandled=many), ConditionType.REMOVALS_SETTLED)
    assert len(found["message"]) == LONGEST_MESSAGE
