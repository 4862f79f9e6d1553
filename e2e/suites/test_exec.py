"""pods/exec on a real node: what the kubelet and the API server really answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from controller.cluster.client import ApiError, NoAnswerError
from controller.cluster.credentials import load_credentials
from controller.cluster.exec import ExecResult, OutputTooLargeError, run
from controller.cluster.http_client import HttpClient
from controller.cluster.server_time import ServerTime
from e2e.cluster import Cluster
from e2e.harness.install import bind_user
from e2e.harness.scope import Scope
from e2e.harness.waiting import wait_for
from e2e.images import build

pytestmark = pytest.mark.cluster

POD, CONTAINER = "sleeper", "main"


@pytest.fixture
def sleeper(node: Cluster, scope: Scope) -> Scope:
    """A Pod with a Python and nothing to do, and a user with the controller's role."""
    bind_user(node, scope.user)
    image = build("sample-engine", progress=lambda line: None)
    scope.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": POD, "namespace": scope.namespace},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [
                    {
                        "name": CONTAINER,
                        "image": image.reference,
                        "imagePullPolicy": "Never",
                        "command": ["python3", "-c", "import time; time.sleep(3600)"],
                    }
                ],
            },
        }
    )
    wait_for("the Pod to run", lambda: scope.is_ready(POD), seconds=60)
    return scope


@asynccontextmanager
async def connected(kubeconfig: Path) -> AsyncGenerator[HttpClient, None]:
    async with HttpClient(await load_credentials(kubeconfig=kubeconfig), server_time=ServerTime()) as client:
        yield client


async def execute(
    client: HttpClient,
    scope: Scope,
    *argv: str,
    pod: str = POD,
    container: str = CONTAINER,
    timeout: float = 10.0,
    max_bytes: int = 1 << 20,
) -> ExecResult:
    return await run(
        client,
        namespace=scope.namespace,
        pod=pod,
        container=container,
        argv=argv,
        timeout=timeout,
        max_bytes=max_bytes,
    )


async def test_processes_are_told_apart_by_how_they_end(node: Cluster, sleeper: Scope) -> None:
    """Output and exit code come through whole; what never started, was refused or did not end has no code."""
    program = "import sys; print('ä;&=%+ '); print('b', file=sys.stderr); sys.exit(int(sys.argv[1]))"
    async with connected(node.identity(sleeper.user)) as client:
        fine = await execute(client, sleeper, "python3", "-c", program, "0")
        assert fine == ExecResult(stdout="ä;&=%+ \n".encode(), stderr=b"b\n", exit_code=0, error="")

        failed = await execute(client, sleeper, "python3", "-c", program, "3")
        assert (failed.stdout, failed.exit_code) == (fine.stdout, 3)
        assert "exit code" in failed.error

        killed = await execute(client, sleeper, "python3", "-c", "import os; os.kill(os.getpid(), 9)")
        assert killed.exit_code == 137

        absent = await execute(client, sleeper, "no-such-program")
        assert absent.exit_code is None
        assert "no-such-program" in absent.error

        nowhere = await failure_of(execute(client, sleeper, "true", container="sidecar"))
        assert "sidecar" in nowhere

        with pytest.raises(ApiError, match='pods "other" not found') as caught:
            await execute(client, sleeper, "true", pod="other")
        assert caught.value.not_found


async def failure_of(read: Awaitable[ExecResult]) -> str:
    """What is said about an exec that could not be begun, by a refusal or by a Status."""
    try:
        found = await read
    except ApiError as error:
        return error.message
    assert found.exit_code is None
    return found.error


async def test_a_forbidden_exec_says_who_may_not_do_what(node: Cluster, sleeper: Scope) -> None:
    """A user without the role is refused with the server's own sentence."""
    async with connected(node.identity("nobody-in-particular")) as client:
        with pytest.raises(ApiError, match='User "nobody-in-particular" cannot') as caught:
            await execute(client, sleeper, "true")
    assert caught.value.status == 403


async def test_bounds_hold_on_the_wire(node: Cluster, sleeper: Scope) -> None:
    """A process that does not end is left at the deadline, one that prints without end at the bound of bytes."""
    async with connected(node.identity(sleeper.user)) as client:
        began = time.monotonic()
        with pytest.raises(NoAnswerError, match="no answer within 1 s"):
            await execute(client, sleeper, "python3", "-c", "import time; time.sleep(20)", timeout=1.0)
        assert time.monotonic() - began < 1.5

        endless = "import sys\nwhile True: sys.stdout.write('x' * 65536)"
        with pytest.raises(OutputTooLargeError):
            await execute(client, sleeper, "python3", "-c", endless)

        large = await execute(client, sleeper, "python3", "-c", "print('x' * 1000000)")
        assert (len(large.stdout), large.exit_code) == (1_000_001, 0)


async def test_execs_leave_nothing_behind(node: Cluster, sleeper: Scope) -> None:
    """After a hundred execs, a third of them cancelled, no task and no socket of ours is left."""
    async with connected(node.identity(sleeper.user)) as client:
        await execute(client, sleeper, "true")
        tasks, sockets = len(asyncio.all_tasks()), open_sockets()
        for _ in range(34):
            slow = asyncio.create_task(
                execute(client, sleeper, "python3", "-c", "import time; time.sleep(9)")
            )
            await execute(client, sleeper, "true")
            await execute(client, sleeper, "false")
            slow.cancel()
            with pytest.raises(asyncio.CancelledError):
                await slow
        await asyncio.sleep(0.5)
        assert len(asyncio.all_tasks()) == tasks
        assert open_sockets() <= sockets


def open_sockets() -> int:
    def target(descriptor: Path) -> str:
        try:
            return str(descriptor.readlink())
        except FileNotFoundError:
            return ""  # the descriptor of the folder that is being read

    return sum(target(descriptor).startswith("socket:") for descriptor in Path("/proc/self/fd").iterdir())


async def test_a_pod_that_goes_ends_its_exec(node: Cluster, sleeper: Scope) -> None:
    """When the Pod is removed under an exec, the exec ends with no exit code, within its bound."""
    async with connected(node.identity(sleeper.user)) as client:
        waiting = asyncio.create_task(
            execute(
                client,
                sleeper,
                "python3",
                "-c",
                "import time; print(1, flush=True); time.sleep(60)",
                timeout=15,
            )
        )
        await asyncio.sleep(1)
        began = time.monotonic()
        await asyncio.to_thread(sleeper.kubectl, "delete", "pod", POD, "--wait=false")
        found = await waiting
        assert found.exit_code in (None, 137), found.error
        assert time.monotonic() - began < 10
