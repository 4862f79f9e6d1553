"""One namespace of a real API server with a whole controller in it, in virtual time.

Time passes only when everything is quiet: no request is open, no key is queued, and every watch has told what was
written. So a slow machine changes nothing, and a test waits minutes of the protocol in a moment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import count
from random import Random
from typing import Any, Final, NamedTuple

import yaml

from controller.assembly import Controller
from controller.cluster.client import Client, Response
from controller.cluster.reads import get
from controller.cluster.resources import (
    DEPLOYMENTS,
    EVENTS,
    MODEL_DEPLOYMENTS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from controller.cluster.writes import MERGE_PATCH
from controller.snapshot import PodView
from controller.telemetry.events import REPORTER
from controller.telemetry.metrics import Metrics
from unit.cluster.virtual_clock import VirtualClock
from unit.invariants import ApiWrite, violations
from unit.reconciler.deployments import Raw, manifest, phase
from unit.reconciler.outside import Engines, Kubelet, Routers, list_in, make_namespace
from unit.reconciler.wire import Between, Book, Call, Send, Wire, straight

NAME: Final = "chat"
KEEPER, TARGET, THIRD = "chat-server-r0-m0", "chat-server-r1-m0", "chat-server-r2-m0"
WHOLE_PATH: Final = ["Admitted", "Disqualified", "Withdrawing", "Draining", "Deleting", "Settling", ""]
"""The states of a retirement that meets no obstacle; "" is the cleared record."""
PATIENCE: Final = 30.0
"""Real seconds after which a world that does not get quiet is taken for stuck."""
CLOCK_ERROR: Final = 0.3
JSON_PATCH: Final = "application/json-patch+json"

_serial = count()


class Clients(NamedTuple):
    """Two identities: of the test, which may do anything, and of the controller, which may do what its role says."""

    admin: Client
    controller: Client


class World:
    """The namespace, what plays the cluster in it, and the controller process that runs at the moment."""

    def __init__(self, clients: Clients, namespace: str) -> None:
        self.namespace = namespace
        self.clock = VirtualClock(start=datetime.now(UTC), error=CLOCK_ERROR)
        self.book = Book()
        # The test's own hand: counted while its calls are open, but none of the controller's.
        self.api = Wire(clients.admin, self.book, self.clock, own=False)
        self.kubelet = Kubelet(self.api, namespace, self.book, self.clock)
        self.routers = Routers(self.api, namespace, self.book)
        self.engines = Engines()
        self.between: Between = straight
        self._client = clients.controller
        self._metrics: list[Metrics] = []
        self._wire: Wire | None = None
        self._controller: Controller | None = None
        self._process: asyncio.Task[None] | None = None

    # --- the controller process ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start a controller that remembers nothing. Returns once it has passed over everything."""
        assert self._process is None
        self._wire = Wire(self._client, self.book, self.clock)
        self._wire.between = self.between
        self._metrics.append(Metrics())
        self._controller = Controller(
            client=self._wire,
            fetch=self.routers,
            readers=self.engines,
            clock=self.clock,
            random=Random(7),
            metrics=self._metrics[-1],
            instance="test",
            namespace=self.namespace,
        )
        self._process = asyncio.create_task(_run(self._controller), name="controller")
        await self.settle()

    async def kill(self) -> None:
        """End the process where it stands; nothing of its memory remains."""
        if self._process is None or self._controller is None or self._wire is None:
            return
        self._process.cancel()
        self._controller.queue.shut_down()
        await asyncio.wait({self._process})
        await self._wire.drained()
        ended, self._process, self._controller, self._wire = self._process, None, None, None
        if not ended.cancelled():
            await ended

    async def restart(self) -> None:
        await self.kill()
        await self.start()

    @property
    def crashed(self) -> bool:
        """Whether the process has met the place where a test lets it die."""
        return self._wire is not None and self._wire.dead

    def interpose(self, between: Between) -> None:
        """Stand between this and every later process and the API server."""
        self.between = between
        if self._wire is not None:
            self._wire.between = between

    def once_stored(self, wanted: str, act: Callable[[], Awaitable[object]]) -> None:
        """Stand between, and act when an operation has been stored in that state for the first time."""
        pending = [act]

        async def between(call: Call, send: Send) -> Response:
            answer = await send()
            if call.stores_state == wanted and pending:
                await pending.pop()()
            return answer

        self.interpose(between)

    async def die(self) -> Response:
        """For `between`: kill the process in the middle of a call."""
        assert self._wire is not None
        return await self._wire.die()

    # --- time ---------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Let everything happen that needs no time."""
        deadline = time.monotonic() + PATIENCE
        quiet = 0
        while quiet < 5:
            assert time.monotonic() < deadline, f"not quiet after {PATIENCE:g} s: {self._unquiet()}"
            if self._process is not None and self._process.done():
                await self._process
                raise AssertionError("the controller ended by itself")
            if self.crashed:
                return
            busy = self._unquiet()
            quiet = 0 if busy else quiet + 1
            await asyncio.sleep(0.001 if busy else 0)

    def _unquiet(self) -> str:
        """What has still to happen before time may pass, "" when nothing has."""
        if self.book.open:
            return f"{self.book.open} requests are open"
        if self._controller is None:
            return ""
        if not self._controller.caches.synced:
            return "the caches are not synced"
        for informer in self._controller.caches.informers:
            plural, store = informer.resource.plural, informer.store
            if store.told < self.book.latest.get(plural, 0):
                return f"a watch has not told of version {self.book.latest[plural]} of {plural}"
            for uid, (kind, namespace, name) in list(self.book.gone.items()):
                known = store.get(namespace, name)
                if kind == plural and known is not None and known["metadata"]["uid"] == uid:
                    return f"a watch has not told of the end of {name}"
        return "" if self._controller.queue.idle else "a deployment is being passed over"

    async def until(self, condition: Callable[[Raw], bool], *, what: str = "", within: float = 60.0) -> Raw:
        """Let time pass until the condition holds of the ModelDeployment ({} once it is gone); returns that."""
        limit = self.clock.monotonic() + within
        while True:
            await self.settle()
            found = await self.deployment()
            if condition(found) or self.crashed:
                return found
            if await self.kubelet.act():
                continue
            if not await self._step(limit):
                raise AssertionError(
                    f"{what or 'the condition'} did not come within {within:g} s: {self._tell(found)}"
                )

    def _tell(self, deployment: Raw) -> str:
        last = "\n".join(str(write) for write in self.writes()[-12:])
        status = yaml.safe_dump(deployment.get("status"), sort_keys=False)
        return f"the last writes were\n{last}\nand the status is\n{status}"

    async def let_pass(self, seconds: float) -> None:
        """Let so much time pass, whatever happens in it."""
        limit = self.clock.monotonic() + seconds
        while True:
            await self.settle()
            if self.crashed or (not await self.kubelet.act() and not await self._step(limit)):
                return

    async def _step(self, limit: float) -> bool:
        """Let time pass until somebody wakes, at most until `limit`; returns whether it is not reached yet."""
        due = self.clock.next_due()
        moment = min(limit, limit if due is None else due)
        await self.clock.advance(max(0.0, moment - self.clock.monotonic()))
        return moment < limit

    # --- what a user does ---------------------------------------------------------------------------------------

    async def create(self, **changes: Any) -> Raw:
        """Create the `manifest`."""
        return await self.apply(manifest(**changes))

    async def apply(self, body: Raw) -> Raw:
        body["metadata"]["namespace"] = self.namespace
        path = MODEL_DEPLOYMENTS.path(namespace=self.namespace)
        created: Raw = (await self.api.request("POST", path, body=body)).body
        return created

    async def ready(self, **changes: Any) -> None:
        """Create it and wait until it is whole."""
        await self.create(**changes)
        await self.until(lambda d: phase(d) == "Ready", what="phase Ready")

    async def edit(self, *operations: Raw) -> None:
        """A JSON patch of the ModelDeployment."""
        await self.api.request(
            "PATCH", self._path(MODEL_DEPLOYMENTS, NAME), body=list(operations), content_type=JSON_PATCH
        )

    async def scale(self, replicas: int, *, role: int = 0) -> None:
        await self.edit({"op": "replace", "path": f"/spec/roles/{role}/replicas", "value": replicas})

    async def annotate(self, key: str, value: str | None) -> None:
        await self.patch(MODEL_DEPLOYMENTS, NAME, {"metadata": {"annotations": {key: value}}})

    async def patch(self, resource: Resource, name: str, body: Raw) -> Raw:
        path = self._path(resource, name)
        found: Raw = (await self.api.request("PATCH", path, body=body, content_type=MERGE_PATCH)).body
        return found

    async def post(self, resource: Resource, body: Raw) -> Raw:
        found: Raw = (await self.api.request("POST", resource.path(namespace=self.namespace), body=body)).body
        return found

    async def delete(self, resource: Resource, name: str) -> None:
        await self.api.request("DELETE", self._path(resource, name))

    async def delete_pod(self, name: str) -> None:
        """`kubectl delete pod`, and the kubelet's end of it unless the test holds that back."""
        await self.delete(PODS, name)
        await self.kubelet.act()

    async def label_pod(self, name: str, key: str, value: str | None) -> None:
        await self.patch(PODS, name, {"metadata": {"labels": {key: value}}})

    async def set_image(self, deployment: str, image: str) -> None:
        """`kubectl set image`."""
        operation = {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": image}
        path = self._path(DEPLOYMENTS, deployment)
        await self.api.request("PATCH", path, body=[operation], content_type=JSON_PATCH)

    async def post_pod(self, name: str, own_labels: dict[str, str], *, owner: Raw | None = None) -> Raw:
        """A Pod made by hand; `owner`: the ModelDeployment that it claims."""
        metadata: Raw = {"name": name, "labels": own_labels}
        if owner is not None:
            reference = {key: owner[key] for key in ("apiVersion", "kind")}
            reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
            metadata["ownerReferences"] = [{**reference, "controller": True}]
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"containers": [{"name": "main", "image": "engine:1"}]},
        }
        return await self.post(PODS, body)

    # --- what can be seen ---------------------------------------------------------------------------------------

    async def get(self, resource: Resource, name: str) -> Raw | None:
        return await get(self.api, self._path(resource, name))

    async def deployment(self) -> Raw:
        return await self.get(MODEL_DEPLOYMENTS, NAME) or {}

    async def pod(self, name: str) -> PodView:
        """The live Pod; an empty one when there is none."""
        return PodView(await self.get(PODS, name) or {})

    async def pod_names(self) -> list[str]:
        """The engines' Pods."""
        names = [pod["metadata"]["name"] for pod in await list_in(self.api, self.book, PODS, self.namespace)]
        return sorted(name for name in names if "-router-" not in name)

    async def owned_objects(self, *, uid: str | None = None) -> list[tuple[Resource, str]]:
        """What stands around the Pods, of the deployment of this UID, or of any."""
        found = []
        for resource in (SERVICES, DEPLOYMENTS, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS):
            answer = await self.api.request("GET", resource.path(namespace=self.namespace))
            for raw in answer.body["items"]:
                owners = [owner["uid"] for owner in raw["metadata"].get("ownerReferences") or ()]
                if owners and uid in (None, *owners):
                    found.append((resource, raw["metadata"]["name"]))
        return found

    async def event_reasons(self) -> list[str]:
        found = await self.api.request("GET", EVENTS.path(namespace=self.namespace))
        events = sorted(found.body["items"], key=lambda event: int(event["metadata"]["resourceVersion"]))
        # The API server's own repair loops tell Events of a busy machine, too.
        return [event["reason"] for event in events if event.get("reportingController") == REPORTER]

    def writes(self, *, since: int = 0, events: bool = False) -> list[ApiWrite]:
        """What the controller asked to be written; the Events only if they are wanted."""
        own = [write for write in self.book.writes[since:] if write.own]
        return [write for write in own if events or write.resource != "events"]

    @property
    def mark(self) -> int:
        """For `writes(since=...)`."""
        return len(self.book.writes)

    def assert_sound(self) -> None:
        """No invariant was broken, and no pass met a defect."""
        broken = violations(self.book.writes)
        assert not broken, "\n".join(broken)
        for metrics in self._metrics:
            defects = metrics.registry.get_sample_value("ebb_reconciles_total", {"outcome": "error"})
            assert not defects, "a pass met a defect; the log has it"

    def _path(self, resource: Resource, name: str) -> str:
        return resource.path(namespace=self.namespace, name=name)


async def _run(controller: Controller) -> None:
    async with asyncio.TaskGroup() as group:
        controller.start(group, workers=2)


@asynccontextmanager
async def new_world(clients: Clients, *, started: bool = True) -> AsyncIterator[World]:
    """A namespace of its own; at the end everything that happened in it must have been sound."""
    world = World(clients, f"world-{next(_serial)}")
    await make_namespace(clients.admin, world.namespace)
    try:
        if started:
            await world.start()
        yield world
    finally:
        await world.kill()
    world.assert_sound()
