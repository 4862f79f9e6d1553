"""What no API server does by itself: the kubelet, the Deployment controller, routers and engines, as scripts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import orjson

from apis.v1alpha1 import labels
from controller.clock import format_time
from controller.cluster.client import ApiError, Client
from controller.cluster.reads import get
from controller.cluster.resources import DEPLOYMENTS, PODS, REPLICA_SETS, Resource
from controller.cluster.writes import MERGE_PATCH
from controller.member_reader.preflight import MemberTarget
from controller.member_reader.verdict import Reading, Verdict, held
from controller.routers.base import UnreachableError
from controller.snapshot import PodView
from unit.cluster.virtual_clock import VirtualClock
from unit.reconciler.wire import Book

ENGINE_PORT: Final = 8000
_addresses = count(1)


async def list_in(client: Client, book: Book, resource: Resource, namespace: str) -> list[dict[str, Any]]:
    """What is there, no older than the newest write: the API server makes an exact list wait for etcd, up to 0.1 s."""
    query = {
        "resourceVersion": str(book.latest.get(resource.plural, 0)),
        "resourceVersionMatch": "NotOlderThan",
    }
    answer = await client.request("GET", resource.path(namespace=namespace), query=query)
    items: list[dict[str, Any]] = answer.body["items"]
    return [raw for raw in items if raw["metadata"]["uid"] not in book.gone]


def _reference(raw: dict[str, Any], kind: str) -> dict[str, Any]:
    metadata = raw["metadata"]
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }


class Kubelet:
    """Starts Pods and ends those that are deleted, at once, but for the names that a test holds back.

    It also plays the Deployment controller: router Pods are made and taken away as the router's Deployment says.
    """

    def __init__(self, client: Client, namespace: str, book: Book, clock: VirtualClock) -> None:
        self.not_started: set[str] = set()
        self.not_ready: set[str] = set()
        self.not_ended: set[str] = set()
        self._client = client
        self._namespace = namespace
        self._book = book
        self._clock = clock
        self._seen: object = None

    async def act(self) -> bool:
        """Do whatever is to be done now; returns whether anything was."""
        seen = (self._book.stirred, len(self.not_started), len(self.not_ended))
        if seen == self._seen:
            return False
        self._seen = seen
        pods = await list_in(self._client, self._book, PODS, self._namespace)
        acted = await self._align_routers({pod["metadata"]["name"] for pod in pods})
        for raw in pods:
            pod = PodView(raw)
            if pod.terminating:
                if pod.name not in self.not_ended:
                    await self.end(pod)
                    acted = True
            elif not pod.node and pod.name not in self.not_started:
                await self.start(pod)
                acted = True
        return acted

    async def start(self, pod: PodView) -> None:
        """Bind the Pod to a node, and let its containers run and be Ready."""
        await self.bind(pod)
        number = next(_addresses)
        main = pod.spec["containers"][0]["name"]
        await self.report(
            pod.name,
            {
                "phase": "Running",
                "podIP": f"10.1.{number // 250}.{number % 250 + 1}",
                "conditions": [
                    {"type": "Ready", "status": "False" if pod.name in self.not_ready else "True"}
                ],
                "containerStatuses": [self._status_of(main, f"containerd://{pod.uid}", restarts=0)],
            },
        )

    async def bind(self, pod: PodView) -> None:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "node"},
        }
        await self._client.request(
            "POST",
            PODS.path(namespace=self._namespace, name=pod.name, subresource="binding"),
            body=binding,
        )

    async def restart(self, pod: PodView) -> None:
        """Another process in the same Pod, as after a crash of the engine."""
        again = self._status_of(labels.MAIN_CONTAINER, f"containerd://{pod.uid}-again", restarts=1)
        await self.report(pod.name, {"containerStatuses": [again]})

    async def report(self, name: str, status: dict[str, Any]) -> None:
        """Patch the status of a Pod, as the kubelet does."""
        await self._client.request(
            "PATCH",
            PODS.path(namespace=self._namespace, name=name, subresource="status"),
            body={"status": status},
            content_type=MERGE_PATCH,
        )

    async def set_ready(self, name: str, ready: bool) -> None:
        await self.report(name, {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]})

    async def end(self, pod: PodView) -> None:
        """Remove a Pod whose containers have ended."""
        await self._client.request(
            "DELETE",
            PODS.path(namespace=self._namespace, name=pod.name),
            body={"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}},
        )

    def _status_of(self, container: str, container_id: str, *, restarts: int) -> dict[str, Any]:
        return {
            "name": container,
            "image": "engine",
            "imageID": "",
            "ready": True,
            "restartCount": restarts,
            "containerID": container_id,
            "state": {"running": {"startedAt": format_time(self._clock.now().earliest)}},
        }

    async def _replica_set(self, deployment: dict[str, Any]) -> dict[str, Any]:
        """The reference to the one ReplicaSet of a Deployment, which is made when there is none."""
        name = f"{deployment['metadata']['name']}-{deployment['metadata']['uid'][:8]}"
        found = await get(self._client, REPLICA_SETS.path(namespace=self._namespace, name=name))
        if found is None:
            body = {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": {"name": name, "ownerReferences": [_reference(deployment, "Deployment")]},
                "spec": {key: deployment["spec"][key] for key in ("selector", "template")} | {"replicas": 0},
            }
            path = REPLICA_SETS.path(namespace=self._namespace)
            found = (await self._client.request("POST", path, body=body)).body
        return _reference(found, "ReplicaSet")

    async def _align_routers(self, present: set[str]) -> bool:
        found = await list_in(self._client, self._book, DEPLOYMENTS, self._namespace)
        wanted = {
            f"{deployment['metadata']['name']}-{deployment['metadata']['uid'][:8]}-{index}": deployment
            for deployment in found
            for index in range(deployment["spec"]["replicas"])
        }
        for name in wanted.keys() - present:
            deployment = wanted[name]
            template = deployment["spec"]["template"]
            owner = await self._replica_set(deployment)
            body = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {**template["metadata"], "name": name, "ownerReferences": [owner]},
                "spec": template["spec"],
            }
            await self._client.request("POST", PODS.path(namespace=self._namespace), body=body)
        for name in {name for name in present if "-router-" in name} - wanted.keys():
            await self._client.request(
                "DELETE", PODS.path(namespace=self._namespace, name=name), body={"gracePeriodSeconds": 0}
            )
        return bool(wanted.keys() - present)


class Routers:
    """Every router Pod of a namespace: it follows the eligibility label and counts, but for what a test says.

    Addresses are those of the engines, without a port.
    """

    def __init__(self, client: Client, namespace: str, book: Book) -> None:
        self.kept_rows: set[str] = set()
        """Addresses that stay listed though their label is off."""
        self.open: dict[str, int] = {}
        self.unreachable = False
        self.unremovable = False
        """Whether only the API that removes rows cannot be reached."""
        self.removals: list[str] = []
        """Addresses that were asked to be removed by API."""
        self._client = client
        self._namespace = namespace
        self._book = book

    async def __call__(self, method: str, url: str, *, timeout: float) -> tuple[int, bytes]:
        parts = urlsplit(url)
        if self.unreachable or (self.unremovable and method == "POST"):
            raise UnreachableError(f"{url}: connection refused")
        if parts.path == "/remove_worker":
            worker = urlsplit(parse_qs(parts.query)["url"][0]).hostname or ""
            self.removals.append(worker)
            self.kept_rows.discard(worker)
            return 200, b"{}"
        if parts.path == "/metrics":
            return 200, "".join(f"{row}\n" for row in self._series()).encode()
        rows = [pod.ip for pod in await self._listed()]
        workers = [{"url": f"http://{ip}:{ENGINE_PORT}"} for ip in rows]
        return 200, orjson.dumps({"workers": workers, "total": len(workers)})

    async def _listed(self) -> list[PodView]:
        found = [PodView(raw) for raw in await list_in(self._client, self._book, PODS, self._namespace)]
        return [
            pod
            for pod in found
            if pod.ip in self.kept_rows or (pod.eligible_label and pod.ready and not pod.terminating)
        ]

    def _series(self) -> Iterator[str]:
        yield "vllm_router_active_workers 2"
        for ip, number in self.open.items():
            yield f'vllm_router_running_requests{{worker="http://{ip}:{ENGINE_PORT}"}} {number}'


class Engines:
    """What engines hold, as their readers tell it: nothing, unless a test says otherwise."""

    def __init__(self) -> None:
        self.in_flight: dict[str, int] = {}
        """Pod name -> requests."""
        self.mute: dict[str, str] = {}
        """Pod name -> why its gauges cannot be read."""
        self.reads: list[str] = []
        """Names of the Pods that were read, in order."""

    async def read(self, target: MemberTarget, *, timeout: float) -> Reading:
        self.reads.append(target.name)
        if target.name in self.mute:
            return held(self.mute[target.name])
        held_requests = self.in_flight.get(target.name, 0)
        return Reading(
            verdict=Verdict.BUSY if held_requests else Verdict.IDLE,
            reason=f"the engine holds {held_requests or 'nothing'} in flight",
            complete=True,
            in_flight=held_requests,
            container_id=target.container_id,
        )


async def make_namespace(client: Client, name: str) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    try:
        await client.request("POST", "/api/v1/namespaces", body=body)
    except ApiError as error:
        if not error.already_exists:
            raise
