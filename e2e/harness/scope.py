"""One namespace of a real cluster and everything a test does in it, through kubectl as a user would."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from apis.v1alpha1 import labels
from controller.pod_renderer.router import API_PORT
from e2e.cluster import Cluster
from e2e.harness.waiting import wait_for

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scope:
    """A namespace, and the user whose controller looks after it."""

    cluster: Cluster
    namespace: str
    user: str
    """Who the controller of this namespace is to the API server."""

    def create(self) -> None:
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})

    def remove(self) -> None:
        """Take everything away without waiting for graces: the test is over."""
        for deployment in self.objects("modeldeployments.ebb.dev"):
            patch = json.dumps({"metadata": {"finalizers": []}})
            self.kubectl(
                "patch", "md", deployment["metadata"]["name"], "--type=merge", "-p", patch, check=False
            )
        self.kubectl("delete", "md", "--all", "--wait=false", check=False)
        self.kubectl("delete", "pods", "--all", "--force", "--grace-period=0", "--wait=false", check=False)
        self.cluster.kubectl("delete", "namespace", self.namespace, "--wait=false", check=False)

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        return self.cluster.kubectl("-n", self.namespace, *arguments, stdin=stdin, check=check)

    def apply(self, manifest: Object) -> None:
        self.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def get(self, kind: str, name: str) -> Object:
        """The object, {} when there is none."""
        found = self.kubectl("get", kind, name, "-o", "json", "--ignore-not-found")
        parsed: Object = json.loads(found) if found.strip() else {}
        return parsed

    def objects(self, kind: str, selector: str = "") -> list[Object]:
        chosen = ["-l", selector] if selector else []
        items: list[Object] = json.loads(self.kubectl("get", kind, "-o", "json", *chosen))["items"]
        return items

    # --- ModelDeployments ---------------------------------------------------------------------------------------

    def deployment(self, name: str) -> Object:
        return self.get("modeldeployments.ebb.dev", name)

    def retirement(self, name: str) -> Object | None:
        found: Object | None = (self.deployment(name).get("status") or {}).get("retirement")
        return found

    def condition(self, name: str, kind: str) -> Object:
        conditions = (self.deployment(name).get("status") or {}).get("conditions") or []
        return next((c for c in conditions if c["type"] == kind), {})

    def scale(self, name: str, replicas: int, *, role: int = 0) -> None:
        """The edit a user makes: the number of replicas in the spec, and nothing else."""
        patch = [{"op": "replace", "path": f"/spec/roles/{role}/replicas", "value": replicas}]
        self.kubectl("patch", "modeldeployment", name, "--type=json", "-p", json.dumps(patch))

    def wait_ready(self, name: str, *, seconds: float = 90) -> None:
        def ready() -> bool:
            found = self.deployment(name)
            status = found.get("status") or {}
            current = status.get("observedGeneration") == found.get("metadata", {}).get("generation")
            return bool(current and status.get("phase") == "Ready")

        wait_for(f"ModelDeployment {name} to be Ready", ready, seconds=seconds)

    def wait_state(self, name: str, *states: str, seconds: float) -> Object:
        """Until the operation is in one of the states; the operation."""

        def probe() -> Object | None:
            found = self.retirement(name)
            return found if found and found["state"] in states else None

        found = wait_for(f"the retirement of {name} to be {' or '.join(states)}", probe, seconds=seconds)
        assert found is not None
        return found

    def wait_settled(self, name: str, *, seconds: float) -> None:
        """Until nothing that the spec takes away is still there."""

        def settled() -> bool:
            found = self.condition(name, "RemovalsSettled")
            generation = self.deployment(name)["metadata"]["generation"]
            return bool(found.get("status") == "True" and found.get("observedGeneration") == generation)

        wait_for(f"the removals of {name} to be settled", settled, seconds=seconds)

    # --- Pods and routers ---------------------------------------------------------------------------------------

    def pod(self, name: str) -> Object:
        return self.get("pod", name)

    def is_ready(self, name: str) -> bool:
        conditions = (self.pod(name).get("status") or {}).get("conditions") or []
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def pods(self, deployment: str, component: str) -> list[Object]:
        return self.objects("pods", f"{labels.INSTANCE}={deployment},{labels.COMPONENT}={component}")

    def router_url(self, deployment: str) -> str:
        """The router by the address of its Pod, which this machine reaches."""

        def address() -> str:
            found = self.pods(deployment, labels.ROUTER_COMPONENT)
            return next((p["status"]["podIP"] for p in found if p.get("status", {}).get("podIP")), "")

        return f"http://{wait_for('an address of the router', address, seconds=30)}:{API_PORT}"

    def workers(self, deployment: str) -> list[str]:
        """The rows that the first router Pod lists now, asked by way of the API server; [] while it does not answer."""
        for pod in self.pods(deployment, labels.ROUTER_COMPONENT)[:1]:
            path = (
                f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}:{API_PORT}/proxy/workers"
            )
            found = self.kubectl("get", "--raw", path, check=False)
            return [row["url"] for row in json.loads(found)["workers"]] if found.startswith("{") else []
        return []

    def wait_workers(self, deployment: str, count: int, *, seconds: float = 60) -> None:
        def listed() -> bool:
            return len(self.workers(deployment)) == count

        wait_for(f"the router of {deployment} to list {count} workers", listed, seconds=seconds)

    def set_faults(self, pod: str, faults: Object, *, port: int = 8000) -> None:
        """Tell a sample engine what to do wrong from now on; {} is good health."""
        import urllib.request

        address = self.pod(pod)["status"]["podIP"]
        request = urllib.request.Request(
            f"http://{address}:{port}/admin/faults", data=json.dumps(faults).encode(), method="POST"
        )
        with urllib.request.urlopen(request, timeout=5) as answer:
            assert answer.status == 200, answer.read()

    def follow_engine_log(self, pod: str, *, seconds: float = 120) -> list[Object]:
        """The sample engine's own account until its container ends, one object a line."""
        text = self.cluster.kubectl(
            *("-n", self.namespace, "logs", "--follow", pod, "-c", labels.MAIN_CONTAINER), timeout=seconds
        )
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    # --- the audit log ------------------------------------------------------------------------------------------

    def requests(self) -> Iterator[Object]:
        """What this scope's controller asked of the API server and was answered, oldest first."""
        assert self.cluster.audit_log is not None
        for line in self.cluster.audit_log.read_text(errors="replace").splitlines():
            event = json.loads(line) if line.endswith("}") else {}
            place = (event.get("objectRef") or {}).get("namespace")
            ours = event.get("user", {}).get("username") == self.user and place in (None, self.namespace)
            if ours and event.get("stage") == "ResponseComplete":
                yield event

    def writes(self) -> list[Object]:
        """Everything that changed or tried to change something, its exec reads left out."""
        reading = ("get", "list", "watch")
        return [
            event
            for event in self.requests()
            if event["verb"] not in reading and (event.get("objectRef") or {}).get("subresource") != "exec"
        ]
