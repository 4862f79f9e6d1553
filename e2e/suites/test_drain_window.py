"""The drain window on a real node: whoever deletes the Pod, by the engine's own log and the kubelet's clock."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from e2e.harness.controller import ControllerProcess
from e2e.harness.objects import MODEL, model_deployment
from e2e.harness.scope import Scope
from e2e.load import Book, End, Request, new_session, stream

pytestmark = pytest.mark.cluster

BUSY, IDLE = "drain-server-r0-m0", "drain-server-r1-m0"
TAKE_OVER = ["vllm", "serve", MODEL, "--served-model-name", MODEL, "--host", "0.0.0.0", "--port", "8000"]


class Logs:
    """The logs of Pods, followed until their container ends: afterwards the Pod is gone, and its log with it."""

    def __init__(self, scope: Scope, *pods: str) -> None:
        self._threads = ThreadPoolExecutor(max_workers=len(pods))
        self._found: dict[str, Future[list[dict[str, Any]]]] = {
            pod: self._threads.submit(scope.follow_engine_log, pod) for pod in pods
        }

    def event(self, pod: str, name: str) -> dict[str, Any]:
        """The one event of that name; waits for the end of the log."""
        found = [line for line in self._found[pod].result(timeout=120) if line["event"] == name]
        assert len(found) == 1, f"{pod} logged {name} {len(found)} times"
        return found[0]


async def stream_all(url: str, seconds: list[float], until: asyncio.Event) -> list[Request]:
    """Streams of these lengths beside each other; `until` is set once each has begun."""
    book = Book()
    requests = [book.open(prompt=f"a stream of {s} s", expected=s, now=time.monotonic()) for s in seconds]
    async with new_session() as session:
        streams = [
            asyncio.create_task(stream(session, url, book=book, request=request, model=MODEL))
            for request in requests
        ]
        while any(request.first_chunk is None for request in requests):
            await asyncio.sleep(0.05)
        until.set()
        await asyncio.gather(*streams)
    return requests


async def delete_under_streams(scope: Scope, seconds: list[float], *pods: str) -> tuple[list[Request], float]:
    """`kubectl delete pod` while the first Pod streams; its requests, and the wall clock of the delete."""
    url = f"http://{scope.pod(BUSY)['status']['podIP']}:8000"
    begun = asyncio.Event()
    streaming = asyncio.create_task(stream_all(url, seconds, begun))
    await asyncio.wait({asyncio.ensure_future(begun.wait()), streaming}, return_when="FIRST_COMPLETED")
    deleted = time.time()
    await asyncio.to_thread(scope.kubectl, "delete", "pod", *pods, "--wait=false")
    return await streaming, deleted


@pytest.mark.parametrize("grace", [30, 45])
async def test_window(grace: int, scope: Scope, controller: ControllerProcess) -> None:
    """Streams of 3 and 12 s end, one of 60 s is cut; SIGTERM by G - 5 when busy, at about 6 s when idle."""
    scope.apply(model_deployment("drain", namespace=scope.namespace, routed=False, grace=grace))
    scope.wait_ready("drain")
    logs = Logs(scope, BUSY, IDLE)
    requests, deleted = await delete_under_streams(scope, [3.0, 12.0, 60.0], BUSY, IDLE)
    assert [request.end for request in requests] == [End.FINISHED, End.FINISHED, End.CUT]
    busy = await asyncio.to_thread(logs.event, BUSY, "sigterm")
    assert grace - 5 <= busy["unix"] - deleted <= grace - 2.5
    assert busy["in_flight"] == 1
    idle = await asyncio.to_thread(logs.event, IDLE, "sigterm")
    left = await asyncio.to_thread(logs.event, IDLE, "exit")
    assert 6.0 <= idle["unix"] - deleted <= 9.0
    # From the signal on it is the engine's own time: the sample engine takes 2 s, as a real vLLM did.
    assert left["unix"] - idle["unix"] <= 3.0


async def test_without_a_hook(scope: Scope, controller: ControllerProcess) -> None:
    """The contrast: a take-over role has no hook, so a plain delete cuts a stream of 12 s at once."""
    scope.apply(model_deployment("drain", namespace=scope.namespace, routed=False, command=TAKE_OVER))
    scope.wait_ready("drain")
    main = scope.pod(BUSY)["spec"]["containers"][0]
    assert "lifecycle" not in main and "livenessProbe" not in main
    logs = Logs(scope, BUSY)
    requests, deleted = await delete_under_streams(scope, [12.0], BUSY)
    assert [request.end for request in requests] == [End.CUT]
    signalled = await asyncio.to_thread(logs.event, BUSY, "sigterm")
    assert signalled["unix"] - deleted < 2.0
