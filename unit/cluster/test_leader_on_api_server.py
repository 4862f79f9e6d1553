"""Two electors and one Lease on a real API server, which is also taken away from them for longer than the lease."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
import yaml

from controller.cluster.credentials import load_credentials
from controller.cluster.http_client import HttpClient
from controller.cluster.leader import Elector, LeaseLostError, Timing
from controller.cluster.reads import get
from controller.cluster.resources import LEASES
from controller.cluster.server_time import ServerTime, SystemClock
from e2e.cluster import ControlPlane

pytestmark = pytest.mark.control_plane

ROLE: Final = Path(__file__).parents[2] / "manifests" / "rbac" / "role.yaml"
QUICK: Final = Timing(lease_seconds=5, renew_seconds=3.0, retry_seconds=0.5)
NAME: Final = "ebb-controller"
_serial = count()


@pytest.fixture
def namespace(plane: ControlPlane) -> str:
    """A namespace in which the user `elector` may do what the controller may in its own."""
    name = f"election-{next(_serial)}"
    plane.kubectl("create", "namespace", name)
    role = yaml.safe_load(ROLE.read_text(encoding="utf-8"))
    role["metadata"]["namespace"] = name
    plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(role))
    plane.kubectl(
        "-n", name, "create", "rolebinding", "elector", f"--role={role['metadata']['name']}", "--user=elector"
    )
    return name


class Rival:
    """An elector with a connection of its own, which acquires and keeps the Lease of a namespace."""

    def __init__(self, client: HttpClient, server_time: ServerTime, namespace: str, name: str) -> None:
        self.elector = Elector(
            client=client,
            clock=SystemClock(server_time),
            random=Random(name),
            namespace=namespace,
            identity=name,
            timing=QUICK,
        )
        self.task = asyncio.create_task(self._live())

    async def _live(self) -> None:
        await self.elector.acquire()
        await self.elector.keep()

    async def end(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError, LeaseLostError):
            await self.task


@asynccontextmanager
async def rival(plane: ControlPlane, namespace: str, name: str) -> AsyncGenerator[Rival, None]:
    server_time = ServerTime()
    credentials = await load_credentials(kubeconfig=plane.identity("elector"))
    async with HttpClient(credentials, server_time=server_time) as client:
        await client.request("GET", "/version")
        made = Rival(client, server_time, namespace, name)
        try:
            yield made
        finally:
            await made.end()


async def until(condition: Callable[[], bool], *, what: str, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"waited {seconds:g} s in vain for {what}") from None


async def spec_of(plane: ControlPlane, namespace: str) -> dict[str, Any]:
    credentials = await load_credentials(kubeconfig=plane.kubeconfig)
    async with HttpClient(credentials, server_time=ServerTime()) as client:
        lease = await get(client, LEASES.path(namespace=namespace, name=NAME))
    assert lease is not None
    spec: dict[str, Any] = lease["spec"]
    return spec


async def test_one_leads_and_releases_to_the_other(plane: ControlPlane, namespace: str) -> None:
    """With the controller's own Role: one of two leads and renews, releases, and the other follows at once."""
    async with rival(plane, namespace, "a") as a, rival(plane, namespace, "b") as b:
        await until(lambda: a.elector.leads or b.elector.leads, what="a leader", seconds=10)
        first, second = (a, b) if a.elector.leads else (b, a)
        before = await spec_of(plane, namespace)
        await asyncio.sleep(QUICK.renew_seconds + 1)
        assert first.elector.leads and not second.elector.leads
        renewed = await spec_of(plane, namespace)
        assert renewed["renewTime"] > before["renewTime"] and renewed["acquireTime"] == before["acquireTime"]
        await first.end()
        await first.elector.release()
        assert not first.elector.leads
        await until(lambda: second.elector.leads, what="the other to lead", seconds=3)
        assert second.elector.handing_over
        after = await spec_of(plane, namespace)
        assert after["leaseTransitions"] == renewed["leaseTransitions"] + 1


async def test_a_silent_leader_is_followed_after_the_lease(plane: ControlPlane, namespace: str) -> None:
    """A leader that says no more is followed once its lease is over and not before; its own fence has shut earlier."""
    async with rival(plane, namespace, "a") as a:
        await until(lambda: a.elector.leads, what="the first to lead", seconds=10)
        async with rival(plane, namespace, "b") as b:
            await asyncio.sleep(1.5)
            await a.end()
            fence = a.elector.ends_at
            await until(lambda: b.elector.leads, what="the second to lead", seconds=QUICK.lease_seconds + 5)
            taken = b.elector.ends_at - QUICK.renew_seconds
            assert taken - fence >= QUICK.lease_seconds - QUICK.renew_seconds


async def test_an_api_server_that_is_away_for_longer_than_the_lease(
    plane: ControlPlane, namespace: str
) -> None:
    """The API server goes for longer than the lease: the leader ends in time, one of the others leads afterwards."""
    async with rival(plane, namespace, "a") as a:
        await until(lambda: a.elector.leads, what="the first to lead", seconds=10)
        async with rival(plane, namespace, "b") as b:
            await asyncio.sleep(1)
            await asyncio.to_thread(plane.stop, "kube-apiserver")
            try:
                await until(a.task.done, what="the leader to end", seconds=QUICK.renew_seconds + 1)
                assert not a.elector.leads
                with pytest.raises(LeaseLostError, match="must not act after 3 s"):
                    await a.task
                await asyncio.sleep(QUICK.lease_seconds)
                assert not b.elector.leads, "nobody can lead without a Lease"
            finally:
                await asyncio.to_thread(plane.start, "kube-apiserver")
            await until(lambda: b.elector.leads, what="the second to lead", seconds=QUICK.lease_seconds + 5)
