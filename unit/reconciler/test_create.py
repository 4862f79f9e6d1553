"""From an empty namespace to a deployment that is whole, and then silence."""

from __future__ import annotations

from typing import Any, Final

import pytest

from apis.v1alpha1 import labels
from controller.cluster.resources import DEPLOYMENTS, MODEL_DEPLOYMENTS, SERVICES
from unit.reconciler.deployments import condition, labelled, phase, replicas_of
from unit.reconciler.world import KEEPER, NAME, TARGET, Clients, World, new_world

pytestmark = pytest.mark.control_plane

ODD_AMOUNTS: Final[dict[str, Any]] = {
    "requests": {"cpu": "1000m", "memory": "1024Mi"},
    "limits": {"cpu": 2, "memory": "0.5e10"},
}
"""Quantities that the API server writes back in another form."""


async def test_create(world: World) -> None:
    """Two replicas, their Services and the router's objects are made, each once and in one go."""
    await world.ready()
    assert await world.pod_names() == [KEEPER, TARGET]
    assert labelled(await world.pod(KEEPER)) and labelled(await world.pod(TARGET))
    created = [f"{write.resource}/{write.name}" for write in world.writes() if write.verb == "create"]
    assert sorted(created) == [
        "deployments/chat-router",
        "pods/chat-server-r0-m0",
        "pods/chat-server-r1-m0",
        "rolebindings/chat-router",
        "roles/chat-router",
        "serviceaccounts/chat-router",
        "services/chat",
        "services/chat-router",
        "services/chat-server",
    ]
    found = await world.deployment()
    assert found["status"]["roleSummary"] == "1R2S"
    assert {c["status"] for c in found["status"]["conditions"]} == {"True"}
    # One status a change that was to be told: the Pods made, their readiness, the router's.
    assert sum(write.is_of("modeldeployments", "status") for write in world.writes()) <= 6


@pytest.mark.parametrize("resources", [None, ODD_AMOUNTS], ids=["plain", "odd amounts"])
async def test_unchanged_world_is_left_alone(world: World, resources: dict[str, Any] | None) -> None:
    """B7 Passes over a world that does not change write nothing, those of a new process neither."""
    extra = {} if resources is None else {"resources": resources}
    await world.ready(
        roles=[replicas_of(2, **extra)], router={"name": "vllm-router", "image": "router:1", **extra}
    )
    mark = world.mark
    await world.annotate("example.com/note", "makes a pass")
    await world.let_pass(600)
    await world.restart()
    await world.annotate("example.com/note", "makes another")
    await world.let_pass(600)
    assert [str(write) for write in world.writes(since=mark, events=True)] == []


async def test_lost_replica_is_made_anew(world: World) -> None:
    """A Pod that somebody deleted, and one that ended by itself, are replaced on their seats without an operation."""
    await world.ready()
    before = [(await world.pod(name)).uid for name in (KEEPER, TARGET)]
    await world.kubelet.report(KEEPER, {"phase": "Failed"})
    await world.until(lambda d: phase(d) == "Ready", what="the failed one to be replaced")
    await world.delete_pod(TARGET)
    await world.until(lambda d: phase(d) == "Ready", what="the deleted one to be replaced")
    after = [(await world.pod(name)).uid for name in (KEEPER, TARGET)]
    assert all(after) and not set(before) & set(after)
    assert await world.event_reasons() == []


async def test_hand_edits_are_put_right(world: World) -> None:
    """A Service's narrowed selector and changed port, a removed label, the router's replicas and image come back."""
    await world.ready()
    wanted = await world.get(SERVICES, NAME)
    assert wanted is not None
    port = {"name": "http", "port": 8000, "targetPort": 9}
    await world.patch(SERVICES, NAME, {"spec": {"selector": {"zone": "b"}, "ports": [port]}})
    await world.patch(MODEL_DEPLOYMENTS, NAME, {"metadata": {"labels": {"team": "x"}}})
    await world.settle()
    restored = await world.get(SERVICES, NAME)
    assert restored is not None and restored["spec"] == wanted["spec"]
    await world.patch(DEPLOYMENTS, "chat-router", {"spec": {"replicas": 0}})
    await world.settle()
    await world.set_image("chat-router", "other:2")
    await world.settle()
    router = await world.get(DEPLOYMENTS, "chat-router")
    assert router is not None and router["spec"]["replicas"] == 1
    assert router["spec"]["template"]["spec"]["containers"][0]["image"] == "router:1"
    await world.label_pod(TARGET, labels.ENDPOINT_ELIGIBLE, None)
    await world.settle()
    assert labelled(await world.pod(TARGET))


async def test_router_comes_and_goes(world: World) -> None:
    """A router that the spec no longer names loses its Deployment and Service, and gets them back when it is named."""
    await world.ready()
    router = (await world.deployment())["spec"]["router"]
    await world.edit({"op": "remove", "path": "/spec/router"})
    found = await world.until(lambda d: "router" not in d["status"])
    assert await world.get(DEPLOYMENTS, "chat-router") is None
    assert await world.get(SERVICES, "chat-router") is None
    assert found["status"]["endpoint"] == f"http://chat.{world.namespace}.svc:8000"
    await world.edit({"op": "add", "path": "/spec/router", "value": router})
    await world.until(lambda d: phase(d) == "Ready" and d["status"]["roleSummary"] == "1R2S")


class TestSomebodyElses:
    """Objects of our names that are not ours."""

    @pytest.mark.parametrize("marked", [False, True], ids=["unlabelled", "with our labels"])
    async def test_service(self, world: World, marked: bool) -> None:
        """A Service of our name is reported in SpecValid, never adopted; once it is gone, ours is made."""
        own = {labels.MANAGED_BY: labels.EBB, labels.INSTANCE: NAME} if marked else {}
        theirs = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": NAME, "labels": own},
            "spec": {"selector": {"app": "other"}, "ports": [{"port": 80}]},
        }
        before = await world.post(SERVICES, theirs)
        await world.create()
        found = await world.until(lambda d: condition(d, "SpecValid").get("status") == "False")
        assert (
            f"Service named {NAME} exists and belongs to somebody else"
            in condition(found, "SpecValid")["message"]
        )
        assert await world.get(SERVICES, NAME) == before
        await world.delete(SERVICES, NAME)
        await world.until(lambda d: condition(d, "SpecValid")["status"] == "True", within=35)
        made = await world.get(SERVICES, NAME)
        assert made is not None and made["metadata"]["ownerReferences"][0]["name"] == NAME

    async def test_pod(self, world: World) -> None:
        """A Pod that has a seat's name and is not ours is told in RolesReady and left alone."""
        await world.post_pod(TARGET, {})
        await world.create()
        found = await world.until(lambda d: condition(d, "RolesReady").get("reason") == "CreateRefused")
        assert f"server/1: a Pod named {TARGET} exists" in condition(found, "RolesReady")["message"]
        await world.delete_pod(TARGET)
        await world.until(lambda d: phase(d) == "Ready", within=65)
        assert (await world.pod(TARGET)).owner_uid == found["metadata"]["uid"]


async def test_controller_that_starts_later(clients: Clients) -> None:
    """A deployment made while no controller ran is brought up by the first that comes."""
    async with new_world(clients, started=False) as world:
        await world.create()
        await world.start()
        await world.until(lambda d: phase(d) == "Ready")
