"""What is kept in memory of the cluster, by deployment, and which change of it wakes which deployment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

from apis.v1alpha1 import labels
from controller.clock import Clock
from controller.cluster.client import Client
from controller.cluster.informer import Informer
from controller.cluster.resources import DEPLOYMENTS, MODEL_DEPLOYMENTS, PODS, SERVICES, Resource
from controller.cluster.store import Event, Raw
from controller.snapshot import PodView

Key = tuple[str, str]
"""(namespace, name) of a ModelDeployment."""

OURS: Final = f"{labels.MANAGED_BY}={labels.EBB}"


class Caches:
    """The informers of one controller. Reads never block and may be behind; what destroys is decided on live reads."""

    def __init__(
        self,
        *,
        client: Client,
        clock: Clock,
        random: Random,
        wake: Callable[[Key], None],
        namespace: str | None,
    ) -> None:
        self._wake = wake

        def informer(resource: Resource, selector: str) -> Informer:
            return Informer(
                client=client,
                resource=resource,
                clock=clock,
                random=random,
                namespace=namespace,
                selector=selector,
                index=_instance,
            )

        self._deployments = informer(MODEL_DEPLOYMENTS, "")
        self._pods = informer(PODS, OURS)
        self._services = informer(SERVICES, OURS)
        self._router_deployments = informer(DEPLOYMENTS, OURS)
        self.informers = (self._deployments, self._pods, self._services, self._router_deployments)
        self._deployments.add_handler(self._deployment_changed)
        self._pods.add_handler(self._part_changed, when=_pod_matters)
        self._services.add_handler(self._part_changed)
        self._router_deployments.add_handler(self._part_changed, when=_spec_matters)

    @property
    def synced(self) -> bool:
        return all(informer.synced.is_set() for informer in self.informers)

    def deployment(self, key: Key) -> Raw | None:
        return self._deployments.store.get(*key)

    def deployments(self) -> Iterator[Raw]:
        return iter(self._deployments.store)

    def pods(self, key: Key) -> list[PodView]:
        """Every Pod with the labels of this deployment, its routers among them, whoever owns it."""
        return [PodView(raw) for raw in self._pods.store.indexed("/".join(key))]

    def find(self, resource: Resource, key: Key) -> Raw | None:
        """A Service or router Deployment by (namespace, name)."""
        informer = self._services if resource is SERVICES else self._router_deployments
        return informer.store.get(*key)

    def parts(self, resource: Resource, key: Key) -> list[Raw]:
        """The Services or router Deployments that carry the labels of this deployment."""
        informer = self._services if resource is SERVICES else self._router_deployments
        return informer.store.indexed("/".join(key))

    def applied(self, resource: Resource, raw: dict[str, Any]) -> None:
        """An own write was answered: what is cached must not be older than that."""
        for informer in self.informers:
            if informer.resource is resource:
                informer.written(raw)

    def _deployment_changed(self, _event: Event, old: Raw | None, new: Raw | None) -> None:
        raw = new or old
        if raw is not None:
            self._wake((raw["metadata"]["namespace"], raw["metadata"]["name"]))

    def _part_changed(self, _event: Event, old: Raw | None, new: Raw | None) -> None:
        for raw in (old, new):
            for instance in _instance(raw) if raw is not None else ():
                namespace, _, name = instance.partition("/")
                self._wake((namespace, name))


def _instance(raw: Raw) -> Iterator[str]:
    metadata = raw.get("metadata") or {}
    name = (metadata.get("labels") or {}).get(labels.INSTANCE)
    if name:
        yield f"{metadata.get('namespace')}/{name}"


def _pod_matters(old: Raw | None, new: Raw | None) -> bool:
    """Whether anything changed that a pass reads: most updates of a Pod are none of ours."""
    return old is None or new is None or _pod_facts(old) != _pod_facts(new)


def _pod_facts(raw: Raw) -> tuple[object, ...]:
    pod = PodView(raw)
    return (
        pod.labels,
        pod.annotations,
        pod.metadata.get("deletionTimestamp"),
        pod.phase,
        pod.ready,
        pod.identity,
    )


def _spec_matters(old: Raw | None, new: Raw | None) -> bool:
    if old is None or new is None:
        return True
    return any(old["metadata"].get(k) != new["metadata"].get(k) for k in ("generation", "deletionTimestamp"))
