"""The retirement protocol on a real node: real engines' processes, a real router, a real kubelet."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from apis.v1alpha1 import labels
from e2e.cluster import Cluster
from e2e.harness.audit import deletes_of_pods, without_uid
from e2e.harness.controller import ControllerProcess
from e2e.harness.objects import MODEL, model_deployment
from e2e.harness.scope import Scope
from e2e.harness.waiting import wait_for
from e2e.load import Book, End, Load, Request, new_session, stream

pytestmark = pytest.mark.cluster

SHORTEST = {"withdrawSeconds": 12, "drainSeconds": 10, "settleSeconds": 5, "totalSeconds": 27}
KEEPER, TARGET = "chat-server-r0-m0", "chat-server-r1-m0"


def uid(scope: Scope, pod: str) -> str:
    return str(scope.pod(pod).get("metadata", {}).get("uid", ""))


def labelled(scope: Scope, pod: str) -> bool:
    found = scope.pod(pod).get("metadata", {}).get("labels") or {}
    return bool(found.get(labels.ENDPOINT_ELIGIBLE) == "true")


def start(scope: Scope, **changes: Any) -> None:
    """The deployment `chat`, whole and listed by its router."""
    scope.apply(model_deployment("chat", namespace=scope.namespace, **changes))
    scope.wait_ready("chat")
    if changes.get("routed", True):
        scope.wait_workers("chat", changes.get("replicas", 2))


def url_of(scope: Scope, pod: str) -> str:
    return f"http://{scope.pod(pod)['status']['podIP']}:8000"


async def stream_beside(url: str, seconds: float, act: Callable[[], Any]) -> tuple[Request, Any]:
    """Stream for so long while `act` runs in a thread, which begins once the first piece has come."""
    book = Book()
    request = book.open(prompt="one stream", expected=seconds, now=time.monotonic())
    async with new_session() as session:
        streaming = asyncio.create_task(stream(session, url, book=book, request=request, model=MODEL))
        while request.first_chunk is None and not streaming.done():
            await asyncio.sleep(0.05)
        result = await asyncio.to_thread(act)
        await streaming
    return request, result


async def test_scale_down_under_load(scope: Scope, controller: ControllerProcess) -> None:
    """B5, B6 2→1 under streaming load to the end: no cut, the keeper untouched, the delete by UID; then quiet."""
    await asyncio.to_thread(start, scope)
    keeper, target = uid(scope, KEEPER), uid(scope, TARGET)
    states: list[str] = []
    async with Load(seed=7) as load:
        load.start(scope.router_url("chat"), clients=8, seconds_range=(3.0, 9.0), model=MODEL)
        while load.open_on(TARGET, min_left=4.0) < 2:
            await asyncio.sleep(0.05)
        scope.scale("chat", 1)
        until = time.monotonic() + 90
        while True:
            found = await asyncio.to_thread(scope.retirement, "chat")
            if states and not found:
                break
            if found and states[-1:] != [found["state"]]:
                states.append(found["state"])
            assert uid(scope, KEEPER) == keeper and labelled(scope, KEEPER)
            assert time.monotonic() < until, f"the retirement did not end; states seen: {states}"
        await load.stop(drain=True)
        losses = [(loss.pod, loss.error) for loss in load.book.losses()]
    assert losses == []
    assert states == sorted(states, key=ORDER.index)
    assert {"Withdrawing", "Draining", "Deleting"} <= set(states)
    scope.wait_settled("chat", seconds=30)
    assert uid(scope, TARGET) == "" and scope.deployment("chat")["status"]["phase"] == "Ready"
    [delete] = deletes_of_pods(scope.writes())
    assert delete["objectRef"]["name"] == TARGET
    assert delete["requestObject"]["preconditions"]["uid"] == target
    settled = len(scope.writes())
    await asyncio.sleep(60)
    assert [(w["verb"], w["requestURI"]) for w in scope.writes()[settled:]] == []


ORDER = ["Admitted", "Disqualified", "Withdrawing", "Draining", "Deleting", "Settling"]


def test_busy_engine_ends_aborted_and_serves_again(scope: Scope, controller: ControllerProcess) -> None:
    """A5, F12 A stream that outlasts the shortest budgets: Aborted, uncut, label and row back; re-declared, cleared."""
    start(scope, retirement=SHORTEST)
    before = uid(scope, TARGET)

    def retire() -> dict[str, Any]:
        scope.scale("chat", 1)
        scope.wait_state("chat", "Draining", seconds=20)
        assert not labelled(scope, TARGET)
        wait_for("the row of the target to be gone", lambda: len(scope.workers("chat")) == 1, seconds=5)
        return scope.wait_state("chat", "Aborted", seconds=30)

    request, aborted = asyncio.run(stream_beside(url_of(scope, TARGET), 40.0, retire))
    assert request.end is End.FINISHED, request.error
    assert "draining did not finish within 10 s" in aborted["reason"]
    assert "1 in flight" in aborted["reason"]
    assert f"kubectl delete pod {TARGET}" in aborted["reason"]
    wait_for("the label to be back", lambda: labelled(scope, TARGET), seconds=5)
    scope.wait_workers("chat", 2, seconds=15)
    assert uid(scope, TARGET) == before
    condition = scope.condition("chat", "RemovalsSettled")
    assert (condition["status"], condition["reason"]) == ("False", "RetirementAborted")
    scope.scale("chat", 2)
    scope.wait_settled("chat", seconds=10)
    assert scope.retirement("chat") is None and uid(scope, TARGET) == before
    assert deletes_of_pods(scope.writes()) == []


def test_taken_back_while_draining(scope: Scope, controller: ControllerProcess) -> None:
    """B11 replicas 2 again while Draining: cancelled, the same Pod serves again, nothing was deleted."""
    start(scope)
    before = uid(scope, TARGET)

    def change_of_mind() -> None:
        scope.scale("chat", 1)
        scope.wait_state("chat", "Draining", seconds=30)
        scope.scale("chat", 2)
        scope.wait_settled("chat", seconds=10)

    request, _ = asyncio.run(stream_beside(url_of(scope, TARGET), 25.0, change_of_mind))
    assert request.end is End.FINISHED, request.error
    scope.wait_workers("chat", 2, seconds=15)
    assert uid(scope, TARGET) == before and labelled(scope, TARGET)
    assert deletes_of_pods(scope.writes()) == []


def test_without_a_router(scope: Scope, controller: ControllerProcess) -> None:
    """D5 No router: held with its reason, label on throughout, Aborted after 30 s; both Pods live and serving."""
    start(scope, routed=False)
    before = [uid(scope, KEEPER), uid(scope, TARGET)]
    scope.scale("chat", 1)
    admitted = scope.wait_state("chat", "Admitted", seconds=10)
    began = time.monotonic()
    while (found := scope.retirement("chat")) and found["state"] == "Admitted":
        assert labelled(scope, TARGET)
        assert time.monotonic() - began < 40, "still Admitted after 40 s"
        time.sleep(0.5)
    assert 25 < time.monotonic() - began < 35
    aborted = scope.wait_state("chat", "Aborted", seconds=5)
    assert aborted["startedAt"] == admitted["startedAt"]
    assert "connections established through the Service" in aborted["reason"]
    assert labelled(scope, TARGET) and [uid(scope, KEEPER), uid(scope, TARGET)] == before
    assert deletes_of_pods(scope.writes()) == []


def test_disaggregated_replica_is_refused(scope: Scope, controller: ControllerProcess) -> None:
    """G4 A member whose command names a data-parallel rank is refused at once, without an exec, label on throughout."""
    start(scope, extra_args=["--data-parallel-rank", "1", "--data-parallel-size", "2"])
    scope.scale("chat", 1)
    aborted = scope.wait_state("chat", "Aborted", seconds=10)
    assert "--data-parallel-rank" in aborted["reason"] and "waiting will not help" in aborted["reason"]
    assert labelled(scope, TARGET)
    execs = [r for r in scope.requests() if (r.get("objectRef") or {}).get("subresource") == "exec"]
    assert execs == [] and deletes_of_pods(scope.writes()) == []


def test_last_serving_replica_waits(scope: Scope, controller: ControllerProcess) -> None:
    """N1 2→1 while ordinal 0 is not Ready: not admitted, no budget runs; Ready again, it is admitted and leaves."""
    start(scope)
    scope.set_faults(KEEPER, {"unhealthy": True})
    wait_for("the keeper to be NotReady", lambda: not scope.is_ready(KEEPER), seconds=60)
    scope.scale("chat", 1)
    waiting = wait_for(
        "the removal to wait",
        lambda: (c := scope.condition("chat", "RemovalsSettled")).get("reason") == "WouldEmptyEndpoint" and c,
        seconds=10,
    )
    assert waiting and "server/1 is the last replica that serves" in waiting["message"]
    assert scope.retirement("chat") is None
    scope.set_faults(KEEPER, {})
    scope.wait_state("chat", "Draining", "Deleting", seconds=60)
    scope.wait_settled("chat", seconds=60)
    assert uid(scope, TARGET) == "" and labelled(scope, KEEPER)


@pytest.mark.parametrize("state", ["Withdrawing", "Draining", "Deleting"])
def test_controller_killed(state: str, scope: Scope, controller: ControllerProcess) -> None:
    """B4 `kill -9` of the controller in a state: the next one goes on with the same clocks to the same end."""
    start(scope)
    before = uid(scope, TARGET)

    def retire() -> tuple[dict[str, Any], dict[str, Any]]:
        scope.scale("chat", 1)
        seen = scope.wait_state("chat", state, seconds=40)
        controller.kill()
        controller.start()
        resumed = scope.retirement("chat")
        assert resumed is not None, "the record was lost with the process"
        return seen, resumed

    # Draining lasts as long as this stream; in Deleting the engine is idle and leaves by its drain window.
    request, (seen, resumed) = asyncio.run(stream_beside(url_of(scope, TARGET), 14.0, retire))
    assert request.end is End.FINISHED, request.error
    for clock in ("startedAt", "deadline"):
        assert resumed[clock] == seen[clock]
    scope.wait_settled("chat", seconds=60)
    assert uid(scope, TARGET) == "" and uid(scope, KEEPER) != ""
    deletes = deletes_of_pods(scope.writes())
    assert {d["requestObject"]["preconditions"]["uid"] for d in deletes} == {before}


def test_other_removals_are_left_standing(scope: Scope, controller: ControllerProcess) -> None:
    """A dropped role is named in RemovalsSettled and its Pod stays; nothing of it is ever deleted."""
    manifest = model_deployment("chat", namespace=scope.namespace, replicas=1, routed=False)
    manifest["spec"]["roles"].append({**manifest["spec"]["roles"][0], "name": "second"})
    manifest["spec"]["entryRole"] = "server"
    scope.apply(manifest)
    scope.wait_ready("chat")
    second = uid(scope, "chat-second-r0-m0")
    scope.kubectl("patch", "md", "chat", "--type=json", "-p", '[{"op":"remove","path":"/spec/roles/1"}]')
    named = wait_for(
        "the dropped role to be named",
        lambda: (c := scope.condition("chat", "RemovalsSettled")).get("reason") == "NotSupportedYet" and c,
        seconds=10,
    )
    assert named and "chat-second-r0-m0 (its role is not in the spec)" in named["message"]
    time.sleep(5)
    assert uid(scope, "chat-second-r0-m0") == second and labelled(scope, "chat-second-r0-m0")
    roles = {r["name"]: r for r in scope.deployment("chat")["status"]["roles"]}
    assert (roles["second"]["desired"], roles["second"]["ready"]) == (0, 1)


def test_deleting_the_deployment(scope: Scope, node: Cluster, controller: ControllerProcess) -> None:
    """Deleting the ModelDeployment takes its Pods, its router and its Services away, the Pods by UID."""
    start(scope)
    scope.kubectl("delete", "md", "chat", "--timeout=90s")
    assert scope.deployment("chat") == {} and scope.pods("chat", "server") == []
    wait_for("the router's Deployment to go", lambda: not scope.objects("deployments"), seconds=30)
    wait_for("the Services to go", lambda: not scope.objects("services"), seconds=30)
    deletes = deletes_of_pods(scope.writes())
    assert {d["objectRef"]["name"] for d in deletes} == {KEEPER, TARGET} and without_uid(deletes) == []
