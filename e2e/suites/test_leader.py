"""Two controllers and one Lease on a real node: one acts, and the other takes over when it cannot any more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster import Cluster
from e2e.harness.audit import broken_invariants, deletes_of_pods, without_uid
from e2e.harness.controller import ControllerProcess, free_port
from e2e.harness.install import bind_lease, bind_user
from e2e.harness.objects import MODEL, model_deployment
from e2e.harness.scope import Scope
from e2e.harness.waiting import wait_for
from e2e.load import Book, End, new_session, stream

pytestmark = pytest.mark.cluster

FAILOVER_SECONDS = 20.0
"""The lease's duration and 5 s: how long nobody may lead after a leader has fallen silent."""
KEEPER, TARGET = "chat-server-r0-m0", "chat-server-r1-m0"


@dataclass(frozen=True, slots=True)
class Rival:
    """One of the two processes; it has a user of its own, so that the audit log tells which of them did what."""

    scope: Scope
    process: ControllerProcess

    def writes(self, *, since: datetime | None = None) -> list[dict[str, Any]]:
        """What it changed or tried to change but for the Lease itself; `since` the API server received it."""
        return [
            write
            for write in self.scope.writes()
            if write["objectRef"]["resource"] != "leases"
            and (since is None or datetime.fromisoformat(write["requestReceivedTimestamp"]) > since)
        ]


@pytest.fixture
def rivals(node: Cluster, scope: Scope, tmp_path: Path) -> Iterator[tuple[Rival, Rival]]:
    """Two controllers for the test's namespace with their Lease in it; the first leads."""
    made = []
    for name in ("a", "b"):
        own = replace(scope, user=f"{scope.user}-{name}")
        bind_user(node, own.user)
        bind_lease(node, own.user, namespace=scope.namespace)
        process = ControllerProcess(
            node,
            user=own.user,
            namespace=scope.namespace,
            log=tmp_path / f"{name}.log",
            port=free_port(),
            lease_namespace=scope.namespace,
        )
        made.append(Rival(own, process))
    first, second = made
    with first.process:
        wait_for("the first controller to lead", first.process.leads, seconds=10)
        with second.process:
            assert not second.process.leads(), "a standby is ready, too, but must not act"
            yield first, second
    for rival in made:
        print(f"controller log of {rival.scope.user}, its end:")
        log = (tmp_path / f"{rival.scope.user[-1]}.log").read_text(errors="replace")
        print(*log.splitlines()[-30:], sep="\n")
        assert "met a defect" not in log


def holder(scope: Scope) -> str:
    return str(scope.get("lease", "ebb-controller")["spec"].get("holderIdentity", ""))


def seconds_until_leads(rival: Rival, began: float) -> float:
    wait_for("the other controller to lead", rival.process.leads, seconds=FAILOVER_SECONDS + 5, every=0.1)
    return time.monotonic() - began


def uid(scope: Scope, pod: str) -> str:
    return str(scope.pod(pod).get("metadata", {}).get("uid", ""))


def together(*rivals: Rival) -> list[dict[str, Any]]:
    """What all of them asked for, as if one had, in the order in which the API server received it."""
    found = [{**event, "user": {"username": "ebb"}} for rival in rivals for event in rival.scope.requests()]
    return sorted(found, key=lambda event: str(event["requestReceivedTimestamp"]))


def test_killed_leader(scope: Scope, rivals: tuple[Rival, Rival]) -> None:
    """`kill -9` of the leader: the standby, silent until then, leads within 20 s and does what was asked meanwhile."""
    first, second = rivals
    scope.apply(model_deployment("chat", namespace=scope.namespace, replicas=1, routed=False))
    scope.wait_ready("chat")
    assert second.writes() == []
    first.process.kill()
    began = time.monotonic()
    scope.scale("chat", 2)
    took = seconds_until_leads(second, began)
    assert took <= FAILOVER_SECONDS
    wait_for("the new leader to fill the seat", lambda: uid(scope, TARGET), seconds=5)
    print(f"failover after kill -9: {took:.1f} s")


def test_stopped_leader(scope: Scope, rivals: tuple[Rival, Rival]) -> None:
    """SIGTERM to the leader: it ends with 0, has given the Lease up, and the standby leads within 5 s."""
    first, second = rivals
    before = holder(scope)
    assert first.process.stop() == 0
    took = seconds_until_leads(second, time.monotonic())
    assert took <= 5.0
    assert holder(scope) not in ("", before)
    assert second.process.stop() == 0
    assert holder(scope) == ""
    print(f"handover after SIGTERM: {took:.1f} s")


@pytest.mark.parametrize("state", ["Draining", "Deleting"])
async def test_suspended_leader(state: str, scope: Scope, rivals: tuple[Rival, Rival]) -> None:
    """S7 The leader stopped amid a retirement for longer than its lease: when it goes on, it does nothing."""
    first, second = rivals
    await asyncio.to_thread(scope.apply, model_deployment("chat", namespace=scope.namespace, grace=60))
    await asyncio.to_thread(scope.wait_ready, "chat")
    await asyncio.to_thread(scope.wait_workers, "chat", 2)
    target = uid(scope, TARGET)
    book = Book()
    url = f"http://{scope.pod(TARGET)['status']['podIP']}:8000"
    lasts = 45.0 if state == "Draining" else 12.0
    request = book.open(prompt="one stream", expected=lasts, now=time.monotonic())
    async with new_session() as session:
        streaming = asyncio.create_task(stream(session, url, book=book, request=request, model=MODEL))
        while request.first_chunk is None and not streaming.done():
            await asyncio.sleep(0.05)
        took, woken = await asyncio.to_thread(suspend, scope, first, second, state)
        await streaming
    assert request.end is End.FINISHED, request.error
    assert took <= FAILOVER_SECONDS
    await asyncio.to_thread(scope.wait_settled, "chat", seconds=90)
    assert uid(scope, TARGET) == "" and uid(scope, KEEPER) != ""
    assert first.writes(since=woken) == []
    deletes = deletes_of_pods([*first.writes(), *second.writes()])
    assert without_uid(deletes) == []
    assert {delete["requestObject"]["preconditions"]["uid"] for delete in deletes} == {target}
    assert broken_invariants(together(first, second), user="ebb") == []
    print(f"failover after SIGSTOP in {state}: {took:.1f} s")


def suspend(scope: Scope, first: Rival, second: Rival, state: str) -> tuple[float, datetime]:
    """Stop the leader in this state until the other leads, and a little; how long that took, when it was woken."""
    scope.scale("chat", 1)
    seen = scope.wait_state("chat", state, seconds=60)
    first.process.suspend()
    took = seconds_until_leads(second, time.monotonic())
    time.sleep(3)
    woken = datetime.now(UTC)
    first.process.go_on()
    assert first.process.wait(seconds=10) == 1
    later = scope.retirement("chat")
    if state == "Draining":
        assert later is not None, "its stream still runs"
        assert [later[clock] for clock in ("startedAt", "deadline")] == [seen["startedAt"], seen["deadline"]]
    return took, woken
