"""The stage of the demo: a node with Ebb on it, deployments of the sample engine, and the load on their routers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from controller.routers.vllm_router import API_PORT
from e2e.cluster import Cluster
from e2e.harness.install import install_api, install_controller
from e2e.harness.waiting import wait_for
from e2e.images import build

NAMESPACE = "ebb-demo"
IMAGES = ("sample-engine", "vllm-router")

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Scene:
    """Reads and edits through kubectl, as a user does."""

    cluster: Cluster

    def prepare(self, say: Say) -> None:
        """Images onto the node, Ebb into the cluster, a namespace of the demo's own."""
        for name in IMAGES:
            self.cluster.load_image(build(name, progress=say).archive)
        say("installing the CRD, the permissions and the controller from manifests/")
        install_api(self.cluster)
        install_controller(self.cluster)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        self.apply(namespace)

    def apply(self, manifest: dict[str, Any]) -> None:
        self.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def get(self, kind: str, name: str) -> dict[str, Any]:
        found = self.cluster.kubectl("-n", NAMESPACE, "get", kind, name, "-o", "json", "--ignore-not-found")
        parsed: dict[str, Any] = json.loads(found) if found.strip() else {}
        return parsed

    def deployment(self, name: str) -> dict[str, Any]:
        return self.get("modeldeployments.ebb.dev", name)

    def pods(self, name: str) -> list[dict[str, Any]]:
        found = self.cluster.kubectl(
            "-n", NAMESPACE, "get", "pods", "-l", f"app.kubernetes.io/instance={name}", "-o", "json"
        )
        items: list[dict[str, Any]] = json.loads(found)["items"]
        return items

    def wait_ready(self, name: str, *, seconds: float = 120) -> None:
        def ready() -> bool:
            status = self.deployment(name).get("status") or {}
            whole = all(role["ready"] == role["desired"] for role in status.get("roles") or [{}] if role)
            return status.get("phase") == "Ready" and whole

        wait_for(f"ModelDeployment {name} to be Ready", ready, seconds=seconds)

    def router_url(self, name: str) -> str:
        """The router by the address of its Pod, which this machine reaches; no Service stands in between."""

        def address() -> str:
            return next(
                (
                    pod["status"]["podIP"]
                    for pod in self.pods(name)
                    if pod["metadata"]["labels"].get("app.kubernetes.io/component") == "router"
                    and (pod.get("status") or {}).get("podIP")
                ),
                "",
            )

        return f"http://{wait_for('an address of the router', address, seconds=30)}:{API_PORT}"

    def scale(self, name: str, replicas: int) -> None:
        """The edit a user makes: the number of replicas in the spec, and nothing else."""
        patch = [{"op": "replace", "path": "/spec/roles/0/replicas", "value": replicas}]
        self.cluster.kubectl(
            "-n", NAMESPACE, "patch", "modeldeployment", name, "--type=json", "-p", json.dumps(patch)
        )

    def delete_pod(self, name: str) -> None:
        self.cluster.kubectl("-n", NAMESPACE, "delete", "pod", name, "--wait=false")

    def wait_listed(self, name: str, replicas: int, *, seconds: float = 60) -> None:
        """Until the router itself says that it serves with so many workers."""
        url = self.router_url(name)

        def listed() -> bool:
            return _workers(url) == replicas

        wait_for(f"the router of {name} to list {replicas} workers", listed, seconds=seconds)


def _workers(url: str) -> int:
    import urllib.request

    try:
        with urllib.request.urlopen(f"{url}/workers", timeout=3) as answer:
            return int(json.load(answer)["total"])
    except OSError:
        return -1


async def in_thread(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """kubectl blocks; the load must not."""
    return await asyncio.to_thread(function, *arguments, **keywords)
