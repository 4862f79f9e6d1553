"""Ebb as a user has it: the controller in the cluster, from its image; the command line on a kubeconfig."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from e2e.cluster import Cluster
from e2e.harness.audit import deletes_of_pods, without_uid
from e2e.harness.controller import ROOT
from e2e.harness.install import NAMESPACE, install_controller, remove_controller
from e2e.harness.objects import MODEL, model_deployment
from e2e.harness.reach import reach_router
from e2e.harness.scope import Scope
from e2e.load import Book, End, new_session, stream

pytestmark = pytest.mark.cluster

TARGET = "chat-server-r1-m0"


@pytest.fixture
def in_cluster(node: Cluster, scope: Scope) -> Iterator[Scope]:
    """A controller in the cluster that looks after this test's namespace alone."""
    install_controller(node, only=scope.namespace)
    yield Scope(node, scope.namespace, user=f"system:serviceaccount:{NAMESPACE}:ebb-controller")
    log = node.kubectl("-n", NAMESPACE, "logs", "deployment/ebb-controller", check=False)
    print("controller log, its end:", *log.splitlines()[-40:], sep="\n")
    remove_controller(node)


def ebb(scope: Scope, *arguments: str) -> str:
    """The `ebb` command with the admin's kubeconfig."""
    answer = subprocess.run(
        [
            *(sys.executable, "-m", "controller", *arguments),
            *("--kubeconfig", str(scope.cluster.kubeconfig), "--namespace", scope.namespace),
        ],
        capture_output=True,
        text=True,
        timeout=30,
        cwd=ROOT,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def assert_one_of_two_leads(scope: Scope) -> None:
    """Both Pods of the installation are Ready, and the Lease bears the name of one of them."""
    system = replace(scope, namespace=NAMESPACE)
    pods = system.objects("pods", "app.kubernetes.io/name=ebb-controller")
    names = [pod["metadata"]["name"] for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    assert len(names) == 2 and all(system.is_ready(name) for name in names)
    holder = system.get("lease", "ebb-controller")["spec"]["holderIdentity"]
    assert holder.partition("_")[0] in names


async def stream_through_a_port_forward(scope: Scope) -> None:
    """The way in that the demo takes where Pods cannot be reached from this machine."""
    book = Book()
    request = book.open(prompt="through a tunnel", expected=2.0, now=time.monotonic())
    with reach_router(scope, "chat", direct=False) as url:
        assert url.startswith("http://127.0.0.1:")
        async with new_session() as session:
            await stream(session, url, book=book, request=request, model=MODEL)
    assert request.end is End.FINISHED, request.error


async def test_scale_down_and_what_the_command_line_says(in_cluster: Scope) -> None:
    """2→1 by the controller in the cluster; `ebb status` and `ebb why` answer why it is still here and until when."""
    scope = in_cluster
    assert_one_of_two_leads(scope)
    scope.apply(model_deployment("chat", namespace=scope.namespace))
    scope.wait_ready("chat")
    scope.wait_workers("chat", 2)
    assert "server/1" in await asyncio.to_thread(ebb, scope, "status")
    await stream_through_a_port_forward(scope)
    book = Book()
    request = book.open(prompt="one stream", expected=25.0, now=time.monotonic())
    url = f"http://{scope.pod(TARGET)['status']['podIP']}:8000"
    async with new_session() as session:
        streaming = asyncio.create_task(stream(session, url, book=book, request=request, model=MODEL))
        while request.first_chunk is None and not streaming.done():
            await asyncio.sleep(0.05)
        await asyncio.to_thread(scope.scale, "chat", 1)
        await asyncio.to_thread(scope.wait_state, "chat", "Draining", seconds=30)
        await asyncio.sleep(2)
        status = await asyncio.to_thread(ebb, scope, "status", "chat")
        why = await asyncio.to_thread(ebb, scope, "why", "chat")
        await streaming
    assert request.end is End.FINISHED, request.error
    for told in (status, why):
        assert "Draining" in told and "1 in flight" in told and "the engine holds 1 in flight" in told
    assert TARGET in why
    await asyncio.to_thread(scope.wait_settled, "chat", seconds=60)
    deletes = deletes_of_pods(scope.writes())
    assert [d["objectRef"]["name"] for d in deletes] == [TARGET] and without_uid(deletes) == []
    events = {event["reason"] for event in scope.objects("events.events.k8s.io")}
    assert {"RetirementAdmitted", "RetirementDraining", "RetirementDeleting", "RetirementCompleted"} <= events
