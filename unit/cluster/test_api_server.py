"""The client, the informer and every kind of write on a real API server."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from controller.cluster.client import ApiError, Client, Response
from controller.cluster.credentials import load_credentials
from controller.cluster.http_client import HttpClient
from controller.cluster.informer import Informer
from controller.cluster.reads import get_pod, list_all
from controller.cluster.resources import EVENTS, MODEL_DEPLOYMENTS, PODS, ROLE_BINDINGS, ROLES, SERVICES
from controller.cluster.server_time import ServerTime, SystemClock
from controller.cluster.store import Event, Raw
from controller.cluster.writes import Writer
from controller.telemetry.events import EventRecorder
from e2e.cluster import ControlPlane

pytestmark = pytest.mark.control_plane

MANIFESTS = Path(__file__).parents[2] / "manifests"
LABELS = {"app.kubernetes.io/managed-by": "ebb-test"}
SELECTOR = "app.kubernetes.io/managed-by=ebb-test"
_serial = count()


@pytest.fixture
def namespace(plane: ControlPlane) -> str:
    name = f"n{next(_serial)}"
    plane.kubectl("create", "namespace", name)
    return name


@asynccontextmanager
async def connected(
    kubeconfig: Path, *, server_time: ServerTime | None = None
) -> AsyncGenerator[HttpClient, None]:
    credentials = await load_credentials(kubeconfig=kubeconfig)
    async with HttpClient(credentials, server_time=server_time or ServerTime()) as client:
        yield client


def a_pod(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {**LABELS, **labels}},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }


def a_deployment(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "ebb.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": name},
        "spec": {
            "model": {"name": "m"},
            "engine": {"name": "vLLM"},
            "roles": [{"name": "server", "kind": "Server", "image": "vllm"}],
        },
    }


def silent_writer(client: Client) -> Writer:
    return Writer(client, applied=lambda resource, raw: None)


async def until(condition: Callable[[], bool], *, what: str, seconds: float = 20.0) -> None:
    """Wait for a condition that another task brings about."""
    try:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"waited {seconds:g} s in vain for {what}") from None


class GatedClient:
    """A Client whose watches begin only while the gate is open, as if the network were away in between."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self.gate = asyncio.Event()
        self.lists = 0

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        timeout: float = 10.0,
    ) -> Response:
        self.lists += 1
        return await self._client.request(
            method, path, query=query, body=body, content_type=content_type, timeout=timeout
        )

    async def stream_lines(
        self, path: str, *, query: Mapping[str, str], inactivity: float
    ) -> AsyncGenerator[bytes, None]:
        await self.gate.wait()
        async with aclosing(self._client.stream_lines(path, query=query, inactivity=inactivity)) as lines:
            async for line in lines:
                yield line

    def exec_channels(
        self, *, namespace: str, pod: str, container: str, argv: Sequence[str], timeout: float
    ) -> AbstractAsyncContextManager[AsyncIterator[tuple[int, bytes]]]:
        raise AssertionError("an informer runs nothing")


class Watching:
    """An informer on the Pods of one namespace, and what it told."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.seen: list[tuple[Event, str, str]] = []
        self.informer = Informer(
            client=client,
            resource=PODS,
            clock=SystemClock(ServerTime()),
            random=Random(1),
            namespace=namespace,
            selector=SELECTOR,
        )
        self.informer.add_handler(self._note)

    def _note(self, event: Event, old: Raw | None, new: Raw | None) -> None:
        metadata = (new or old or {})["metadata"]
        self.seen.append((event, metadata["name"], metadata["uid"]))

    def names(self, event: Event) -> list[str]:
        return [name for kind, name, _ in self.seen if kind is event]

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        task = asyncio.create_task(self.informer.run())
        try:
            async with asyncio.timeout(20):
                await self.informer.synced.wait()
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def test_an_informer_follows_a_collection(plane: ControlPlane, namespace: str) -> None:
    """Listed, added, modified and deleted Pods behind the selector are told in order, others not at all."""
    async with connected(plane.kubeconfig) as client:
        writer = silent_writer(client)
        first = await writer.create(PODS, a_pod("first"), namespace=namespace)
        other = a_pod("other")
        other["metadata"]["labels"] = {}
        await writer.create(PODS, other, namespace=namespace)
        watching = Watching(client, namespace)
        async with watching.running():
            second = await writer.create(PODS, a_pod("second"), namespace=namespace)
            uid = second["metadata"]["uid"]
            await writer.patch(
                PODS, {"metadata": {"labels": {"a": "b"}}}, namespace=namespace, name="second", uid=uid
            )
            await writer.delete_pod(namespace=namespace, name="second", uid=uid)
            await until(
                lambda: Event.DELETED in {event for event, _, _ in watching.seen}, what="the deletion"
            )
            raw = watching.informer.store.get(namespace, "first")
    assert watching.seen[0] == (Event.LISTED, "first", first["metadata"]["uid"])
    assert [event for event, name, _ in watching.seen if name == "second"][:2] == [
        Event.ADDED,
        Event.MODIFIED,
    ]
    assert watching.seen[-1] == (Event.DELETED, "second", uid)
    assert watching.names(Event.ADDED) == ["second"]
    assert raw is not None
    assert "managedFields" not in raw["metadata"]
    assert raw["kind"] == "Pod"


async def test_own_writes_are_read_back_at_once_and_told_once(plane: ControlPlane, namespace: str) -> None:
    """What a Writer was answered is in the store before the watch says it, and the watch adds nothing to it."""
    async with connected(plane.kubeconfig) as client:
        gated = GatedClient(client)
        watching = Watching(gated, namespace)
        writer = Writer(client, applied=lambda resource, raw: watching.informer.written(raw))
        async with watching.running():
            created = await writer.create(PODS, a_pod("own"), namespace=namespace)
            uid = created["metadata"]["uid"]
            assert watching.seen == [(Event.ADDED, "own", uid)]
            await writer.patch(
                PODS, {"metadata": {"labels": {"a": "b"}}}, namespace=namespace, name="own", uid=uid
            )
            stored = watching.informer.store.get(namespace, "own")
            assert stored is not None
            assert stored["metadata"]["labels"]["a"] == "b"
            gated.gate.set()
            await silent_writer(client).create(PODS, a_pod("marker"), namespace=namespace)
            await until(lambda: "marker" in watching.names(Event.ADDED), what="the watch to catch up")
    assert [(event, name) for event, name, _ in watching.seen] == [
        (Event.ADDED, "own"),
        (Event.MODIFIED, "own"),
        (Event.ADDED, "marker"),
    ]


async def test_a_compacted_version_is_listed_again(plane: ControlPlane, namespace: str) -> None:
    """After a compaction and a restart of the API server: one new list, two deletions by old UID, one addition."""
    async with connected(plane.kubeconfig) as client:
        gated = GatedClient(client)
        writer = silent_writer(client)
        made = {
            name: await writer.create(PODS, a_pod(name), namespace=namespace)
            for name in ("kept", "gone", "again")
        }
        watching = Watching(gated, namespace)
        async with watching.running():
            for name in ("gone", "again"):
                await writer.delete_pod(namespace=namespace, name=name, uid=made[name]["metadata"]["uid"])
            successor = await writer.create(PODS, a_pod("again"), namespace=namespace)
            await asyncio.to_thread(plane.stop, "kube-apiserver")
            compact(plane, int(successor["metadata"]["resourceVersion"]))
            await asyncio.to_thread(plane.start, "kube-apiserver")
            lists = gated.lists
            gated.gate.set()
            await until(
                lambda: len(watching.names(Event.DELETED)) == 2, what="the deletions that were missed"
            )
            assert gated.lists == lists + 1
    news = watching.seen[3:]
    assert sorted((event.name, name, uid) for event, name, uid in news) == [
        ("ADDED", "again", successor["metadata"]["uid"]),
        ("DELETED", "again", made["again"]["metadata"]["uid"]),
        ("DELETED", "gone", made["gone"]["metadata"]["uid"]),
    ]


def compact(plane: ControlPlane, revision: int) -> None:
    """Make etcd forget everything before `revision`, through its JSON gateway."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{plane.spec.etcd_port}/v3/kv/compaction",
        data=json.dumps({"revision": str(revision), "physical": True}).encode(),
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 200


async def test_an_informer_outlives_the_api_server(plane: ControlPlane, namespace: str) -> None:
    """The API server is killed and started again: the informer goes on by itself, without a new list."""
    async with connected(plane.kubeconfig) as client:
        gated = GatedClient(client)
        gated.gate.set()
        watching = Watching(gated, namespace)
        async with watching.running():
            await asyncio.to_thread(plane.stop, "kube-apiserver")
            await asyncio.to_thread(plane.start, "kube-apiserver")
            await silent_writer(client).create(PODS, a_pod("after"), namespace=namespace)
            await until(
                lambda: watching.names(Event.ADDED) == ["after"], what="the Pod made after the restart"
            )
    assert gated.lists == 1


async def test_deletes_hold_their_preconditions(plane: ControlPlane, namespace: str) -> None:
    """S1 A delete with another UID, or with a version that has passed, is a definite conflict and deletes nothing."""
    async with connected(plane.kubeconfig) as client:
        writer = silent_writer(client)
        created = await writer.create(PODS, a_pod("p"), namespace=namespace)
        uid, version = created["metadata"]["uid"], created["metadata"]["resourceVersion"]
        with pytest.raises(ApiError, match="the UID in the precondition") as caught:
            await writer.delete_pod(namespace=namespace, name="p", uid="00000000-0000-0000-0000-000000000000")
        assert caught.value.conflict
        assert caught.value.definite
        await writer.patch(PODS, {"metadata": {"labels": {"a": "b"}}}, namespace=namespace, name="p", uid=uid)
        with pytest.raises(ApiError, match="the ResourceVersion in the precondition") as caught:
            await writer.delete_pod(namespace=namespace, name="p", uid=uid, resource_version=version)
        assert caught.value.conflict
        assert await get_pod(client, namespace=namespace, name="p") is not None
        await writer.delete_pod(namespace=namespace, name="p", uid=uid)
        assert await get_pod(client, namespace=namespace, name="p") is None


async def test_patches_hold_their_preconditions(plane: ControlPlane, namespace: str) -> None:
    """A patch for another UID or an older version is a definite refusal and changes nothing."""
    async with connected(plane.kubeconfig) as client:
        writer = silent_writer(client)
        created = await writer.create(PODS, a_pod("p"), namespace=namespace)
        uid, version = created["metadata"]["uid"], created["metadata"]["resourceVersion"]
        change = {"metadata": {"labels": {"a": "b"}}}
        with pytest.raises(ApiError) as caught:
            await writer.patch(
                PODS, change, namespace=namespace, name="p", uid="00000000-0000-0000-0000-000000000000"
            )
        assert (caught.value.status, caught.value.reason) == (422, "Invalid")
        patched = await writer.patch(
            PODS, change, namespace=namespace, name="p", uid=uid, resource_version=version
        )
        assert patched["metadata"]["labels"]["a"] == "b"
        with pytest.raises(ApiError) as caught:
            await writer.patch(
                PODS,
                {"metadata": {"labels": {"a": "c"}}},
                namespace=namespace,
                name="p",
                uid=uid,
                resource_version=version,
            )
        assert caught.value.conflict
        found = await get_pod(client, namespace=namespace, name="p")
        assert found is not None
        assert found.labels["a"] == "b"


async def test_a_status_is_written_at_the_version_that_was_read(plane: ControlPlane, namespace: str) -> None:
    """A status goes in at its version; on an older one it is a conflict, and the spec is never touched."""
    async with connected(plane.kubeconfig) as client:
        writer = silent_writer(client)
        read = await writer.create(MODEL_DEPLOYMENTS, a_deployment("m"), namespace=namespace)
        spec = read["spec"]
        changed = {**read, "spec": {**spec, "model": {"name": "other"}}, "status": {"phase": "Starting"}}
        written = await writer.replace_status(MODEL_DEPLOYMENTS, changed)
        assert written["status"] == {"phase": "Starting"}
        assert written["spec"] == spec
        with pytest.raises(ApiError) as caught:
            await writer.replace_status(MODEL_DEPLOYMENTS, {**read, "status": {"phase": "Ready"}})
        assert caught.value.conflict


async def test_a_second_creation_is_told_apart(plane: ControlPlane, namespace: str) -> None:
    """Creating a name that exists is AlreadyExists, which no precondition's conflict looks like."""
    async with connected(plane.kubeconfig) as client:
        writer = silent_writer(client)
        await writer.create(PODS, a_pod("p"), namespace=namespace)
        with pytest.raises(ApiError) as caught:
            await writer.create(PODS, a_pod("p"), namespace=namespace)
    assert caught.value.already_exists
    assert not caught.value.conflict


async def test_a_list_of_many_pages_is_whole(plane: ControlPlane, namespace: str) -> None:
    """More Pods than a page holds: the informer has them all."""
    async with connected(plane.kubeconfig) as client:
        writer = silent_writer(client)
        for start in range(0, 510, 51):
            await asyncio.gather(
                *(writer.create(PODS, a_pod(f"p{n}"), namespace=namespace) for n in range(start, start + 51))
            )
        gated = GatedClient(client)
        watching = Watching(gated, namespace)
        async with watching.running():
            assert len(watching.informer.store) == 510
        assert gated.lists == 2
        assert len(await list_all(client, PODS.path(namespace=namespace), selector=SELECTOR)) == 510


async def test_the_servers_time_is_ours_on_one_machine(plane: ControlPlane) -> None:
    """On the machine whose clock the API server reads, the local time lies in the interval, and that is narrow."""
    server_time = ServerTime()
    async with connected(plane.kubeconfig, server_time=server_time) as client:
        for _ in range(40):
            await client.request("GET", "/version")
            await asyncio.sleep(0.03)
        now, local = server_time.now(), datetime.now(tz=UTC)
    assert now.earliest <= local <= now.latest
    assert (now.latest - now.earliest).total_seconds() < 0.5


async def test_an_event_is_accepted(plane: ControlPlane, namespace: str) -> None:
    """An Event of the recorder is accepted, and `kubectl describe` shows it."""
    server_time = ServerTime()
    async with connected(plane.kubeconfig, server_time=server_time) as client:
        writer = silent_writer(client)
        raw = await writer.create(MODEL_DEPLOYMENTS, a_deployment("m"), namespace=namespace)
        recorder = EventRecorder(
            create=lambda namespace, event: writer.create(EVENTS, event, namespace=namespace),
            clock=SystemClock(server_time),
            random=Random(),
            instance="test",
        )
        recorder.emit(raw, type="Warning", reason="RetirementAborted", message="replica server/1 stays")
        task = asyncio.create_task(recorder.run())
        await recorder.flushed()
        task.cancel()
    described = plane.kubectl("-n", namespace, "describe", "modeldeployment", "m")
    assert "RetirementAborted" in described
    assert "replica server/1 stays" in described


async def test_the_controllers_role_is_enough_and_no_more(plane: ControlPlane, namespace: str) -> None:
    """With its own role the controller can do each thing it does, grant a router its role, and read no Secret."""
    plane.kubectl("apply", "-k", str(MANIFESTS / "rbac"))
    user = "ebb-controller-of-a-test"
    plane.kubectl("create", "clusterrolebinding", user, "--clusterrole=ebb-controller", f"--user={user}")
    async with connected(plane.kubeconfig) as admin:
        await silent_writer(admin).create(MODEL_DEPLOYMENTS, a_deployment("m"), namespace=namespace)
    async with connected(plane.identity(user)) as client:
        writer = silent_writer(client)
        watching = Watching(client, namespace)
        async with watching.running():
            created = await writer.create(PODS, a_pod("p"), namespace=namespace)
            uid = created["metadata"]["uid"]
            await writer.patch(
                PODS, {"metadata": {"labels": {"a": "b"}}}, namespace=namespace, name="p", uid=uid
            )
            await writer.delete_pod(namespace=namespace, name="p", uid=uid)
        [raw] = await list_all(client, MODEL_DEPLOYMENTS.path(namespace=namespace), selector="")
        finalized = await writer.patch(
            MODEL_DEPLOYMENTS,
            {"metadata": {"finalizers": ["ebb.dev/retirement"]}},
            namespace=namespace,
            name="m",
            uid=raw["metadata"]["uid"],
        )
        await writer.replace_status(MODEL_DEPLOYMENTS, {**finalized, "status": {"phase": "Starting"}})
        await writer.create(
            SERVICES, {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}, namespace=namespace
        )
        rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
        await writer.create(ROLES, {"metadata": {"name": "router"}, "rules": rules}, namespace=namespace)
        binding = {
            "metadata": {"name": "router"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "router"},
            "subjects": [{"kind": "ServiceAccount", "name": "router", "namespace": namespace}],
        }
        await writer.create(ROLE_BINDINGS, binding, namespace=namespace)
        with pytest.raises(ApiError, match="cannot list resource") as caught:
            await client.request("GET", f"/api/v1/namespaces/{namespace}/secrets")
        assert caught.value.status == 403
        wider = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
        with pytest.raises(ApiError, match="attempting to grant RBAC permissions not currently held"):
            await writer.create(ROLES, {"metadata": {"name": "wider"}, "rules": wider}, namespace=namespace)


def test_the_installation_is_accepted(plane: ControlPlane) -> None:
    """Everything under manifests/controller is accepted by the API server, and its Pods by the restricted profile."""
    rendered = plane.kubectl("kustomize", str(MANIFESTS / "controller"))
    kinds = {document["kind"] for document in yaml.safe_load_all(rendered)}
    assert {"Namespace", "CustomResourceDefinition", "ClusterRole", "ServiceAccount", "Deployment"} <= kinds
    plane.kubectl("apply", "-k", str(MANIFESTS / "rbac"))
    said = plane.kubectl("apply", "--server-side", "--dry-run=server", "-k", str(MANIFESTS / "controller"))
    assert "would violate PodSecurity" not in said
    assert "deployment.apps/ebb-controller serverside-applied" in said
