"""What the spec takes away without an operation, what is left standing, what waits, and what cannot be made."""

from __future__ import annotations

from typing import Final

import pytest

from apis.v1alpha1 import labels
from controller.cluster.client import ApiError, Response
from controller.cluster.resources import PODS, Resource
from unit.reconciler.deployments import (
    condition,
    labelled,
    manifest,
    operation,
    phase,
    replicas_of,
    settled,
    state,
    states_stored,
)
from unit.reconciler.wire import Call, Send, straight
from unit.reconciler.world import KEEPER, NAME, TARGET, THIRD, WHOLE_PATH, World

pytestmark = pytest.mark.control_plane

LIMIT_RANGES: Final = Resource("", "v1", "limitranges", "LimitRange")
PAUSED: Final = "ebb.dev/paused"


class TestNeverRan:
    """A replica beyond the count whose engine never ran has nothing to drain."""

    @pytest.mark.parametrize("how", ["not scheduled", "pulling its image"])
    async def test_leaves_directly(self, world: World, how: str) -> None:
        """N2 It is deleted at once without an operation, by UID and at the very version that was judged."""
        world.kubelet.not_started.add(TARGET)
        await world.create()
        await world.until(lambda d: d["status"]["roles"][0]["ready"] == 1)
        if how == "pulling its image":
            await world.kubelet.bind(await world.pod(TARGET))
            waiting = {"name": "main", "image": "", "imageID": "", "ready": False, "restartCount": 0}
            reason = {"state": {"waiting": {"reason": "ImagePullBackOff"}}}
            await world.kubelet.report(TARGET, {"phase": "Pending", "containerStatuses": [waiting | reason]})
            await world.settle()
        judged = await world.pod(TARGET)
        mark = world.mark
        await world.scale(1)
        await world.until(settled)
        [delete] = [write for write in world.writes(since=mark) if write.verb == "delete"]
        assert delete.body["preconditions"] == {"uid": judged.uid, "resourceVersion": judged.resource_version}
        assert not any(operation(write.answer) for write in world.writes())
        await world.let_pass(1)
        assert await world.pod_names() == [KEEPER]

    async def test_starts_meanwhile(self, world: World) -> None:
        """N2 It starts between the read and the delete: a conflict, decided again, and now it is an operation."""
        world.kubelet.not_started.add(TARGET)
        await world.create()
        await world.until(lambda d: d["status"]["roles"][0]["ready"] == 1)
        starting = await world.pod(TARGET)

        async def start_first(call: Call, send: Send) -> Response:
            if call.is_("delete", "pods") and world.kubelet.not_started:
                world.kubelet.not_started.clear()
                await world.kubelet.start(starting)
            return await send()

        world.interpose(start_first)
        mark = world.mark
        await world.scale(1)
        await world.until(settled)
        deletes = [write for write in world.writes(since=mark) if write.verb == "delete"]
        assert [(write.code, write.conditional) for write in deletes] == [(409, True), (200, False)]
        assert (await world.event_reasons())[-1] == "RetirementCompleted"

    async def test_beside_an_operation(self, world: World) -> None:
        """It leaves also while another replica is being retired, and the operation goes on undisturbed."""
        await world.ready(roles=[replicas_of(3)])
        world.engines.in_flight[THIRD] = 1
        mark = world.mark
        await world.scale(2)
        await world.until(lambda d: state(d) == "Draining")
        world.kubelet.not_started.add(TARGET)
        await world.delete_pod(TARGET)
        await world.settle()
        assert await world.pod_names() == [KEEPER, TARGET, THIRD]
        await world.scale(1)
        found = await world.until(lambda d: d["status"]["observedGeneration"] == d["metadata"]["generation"])
        assert state(found) == "Draining" and await world.pod_names() == [KEEPER, THIRD]
        world.engines.in_flight.clear()
        await world.until(settled)
        assert states_stored(world.writes(since=mark)) == WHOLE_PATH


class TestLeftStanding:
    """Removals that this release does not carry out."""

    async def test_dropped_role(self, world: World) -> None:
        """A role that the spec drops stays, serves, and is named; its Pod is not made anew either."""
        second = {**replicas_of(1), "name": "second"}
        await world.ready(roles=[replicas_of(1), second], entryRole="server")
        before = await world.pod("chat-second-r0-m0")
        await world.edit({"op": "remove", "path": "/spec/roles/1"})
        found = await world.until(lambda d: condition(d, "RemovalsSettled")["status"] == "False")
        assert condition(found, "RemovalsSettled")["reason"] == "NotSupportedYet"
        assert (
            f"{before.name} (its role is not in the spec)" in condition(found, "RemovalsSettled")["message"]
        )
        mark = world.mark
        await world.let_pass(600)
        assert await world.pod(before.name) == before and world.writes(since=mark) == []
        roles = {role["name"]: role for role in found["status"]["roles"]}
        assert (roles["second"]["desired"], roles["second"]["ready"]) == (0, 1)

    async def test_stray_pod(self, world: World) -> None:
        """A Pod of ours without a seat is named, counted as unmanaged and left, without the label as it came."""
        await world.ready(roles=[replicas_of(1)])
        owner = await world.deployment()
        identity = {labels.INSTANCE: NAME, labels.MANAGED_BY: labels.EBB, labels.COMPONENT: "server"}
        await world.post_pod("by-hand", identity, owner=owner)
        found = await world.until(lambda d: condition(d, "RemovalsSettled")["status"] == "False")
        assert "by-hand (its labels name no seat)" in condition(found, "RemovalsSettled")["message"]
        assert found["status"]["roles"][0]["unmanaged"] == 1
        await world.let_pass(600)
        assert await world.pod_names() == ["by-hand", KEEPER]
        assert not labelled(await world.pod("by-hand"))

    async def test_somebody_elses_pod(self, world: World) -> None:
        """A Pod with our labels that the deployment does not own is neither counted nor touched."""
        await world.ready(roles=[replicas_of(1)])
        found = await world.deployment()
        seat = {labels.COMPONENT: "server", labels.REPLICA: "7", labels.MEMBER: "0", labels.REPLICA_SIZE: "1"}
        identity = {labels.INSTANCE: NAME, labels.MANAGED_BY: labels.EBB}
        await world.post_pod("not-ours", identity | seat)
        mark = world.mark
        await world.let_pass(600)
        assert world.writes(since=mark) == []
        assert (await world.deployment())["status"] == found["status"]


async def test_last_serving_replica_waits(world: World) -> None:
    """N1 2→1 while ordinal 0 is not Ready: no operation, no budget, the sentence; Ready again, it is admitted."""
    await world.ready()
    await world.kubelet.set_ready(KEEPER, False)
    await world.settle()
    await world.scale(1)
    found = await world.until(lambda d: condition(d, "RemovalsSettled")["reason"] == "WouldEmptyEndpoint")
    assert "server/1 is the last replica that serves" in condition(found, "RemovalsSettled")["message"]
    mark = world.mark
    await world.let_pass(900)
    assert world.writes(since=mark) == [] and not operation(await world.deployment())
    await world.kubelet.set_ready(KEEPER, True)
    await world.until(settled)
    assert await world.pod_names() == [KEEPER]


class TestPaused:
    """The annotation `ebb.dev/paused`."""

    async def test_from_the_start(self, world: World) -> None:
        """Nothing at all is created until the annotation is taken off, and Ready says so."""
        body = manifest()
        body["metadata"]["annotations"] = {PAUSED: "true"}
        await world.apply(body)
        found = await world.until(lambda d: condition(d, "Ready").get("reason") == "Paused")
        await world.let_pass(300)
        assert [write for write in world.writes() if write.verb == "create"] == []
        assert condition(found, "Ready")["status"] == "False"
        await world.annotate(PAUSED, None)
        await world.until(lambda d: phase(d) == "Ready")

    async def test_holds_removals_and_refills(self, world: World) -> None:
        """A removal waits by name and a lost replica is not made anew; afterwards both happen."""
        await world.ready()
        await world.annotate(PAUSED, "true")
        await world.scale(1)
        await world.delete_pod(KEEPER)
        found = await world.until(lambda d: condition(d, "RemovalsSettled")["reason"] == "Paused")
        assert condition(found, "Ready")["reason"] == "Paused"
        await world.let_pass(300)
        assert await world.pod_names() == [TARGET] and not operation(await world.deployment())
        await world.annotate(PAUSED, None)
        await world.until(lambda d: phase(d) == "Ready" and settled(d))
        assert await world.pod_names() == [KEEPER]


async def test_refused_creation(world: World) -> None:
    """A creation that the API server refuses: its sentence in RolesReady, one Event, and tries once a minute."""
    at_most = {"type": "Pod", "max": {"memory": "1Gi"}}
    limit = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "small"},
        "spec": {"limits": [at_most]},
    }
    await world.post(LIMIT_RANGES, limit)
    await world.create(router=None, roles=[replicas_of(2, resources={"limits": {"memory": "2Gi"}})])
    found = await world.until(lambda d: condition(d, "RolesReady").get("reason") == "CreateRefused")
    assert "maximum memory usage per Pod is 1Gi" in condition(found, "RolesReady")["message"]
    assert "server/0: " in condition(found, "RolesReady")["message"]
    await world.let_pass(120)
    calls, mark = world.book.calls, world.mark
    for minute in range(4):
        # A wake-up of the deployment, as each event of a Pod is one, is no reason to try sooner.
        await world.annotate("example.com/minute", str(minute))
        await world.let_pass(60)
    creates = [write for write in world.writes(since=mark) if write.verb == "create"]
    assert {write.code for write in creates} == {403}
    assert 4 <= len(creates) / 2 <= 6 and world.book.calls - calls <= 20
    assert await world.event_reasons() == ["CreateRefused"]
    await world.delete(LIMIT_RANGES, "small")
    await world.until(lambda d: phase(d) == "Ready", within=61)
    assert await world.event_reasons() == ["CreateRefused"]


async def test_refused_creation_of_a_corrected_spec(world: World) -> None:
    """A refused spec that is corrected is tried at once, however long the wait has grown."""
    at_most = {"type": "Pod", "max": {"memory": "1Gi"}}
    limit = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small"}}
    await world.post(LIMIT_RANGES, {**limit, "spec": {"limits": [at_most]}})
    await world.create(router=None, roles=[replicas_of(2, resources={"limits": {"memory": "2Gi"}})])
    await world.let_pass(300)
    await world.edit({"op": "replace", "path": "/spec/roles/0/resources/limits/memory", "value": "512Mi"})
    await world.until(lambda d: phase(d) == "Ready", within=5)


@pytest.mark.parametrize("status", [429, 500])
async def test_creation_that_fails(world: World, status: int) -> None:
    """A failing webhook or an overloaded server is told like a refusal, and nothing else waits for it."""
    await world.ready()
    failing = ApiError(
        status=status, reason="InternalError", message="failed calling webhook pods.example.com"
    )

    async def fail(call: Call, send: Send) -> Response:
        if call.is_("create", "pods"):
            raise failing
        return await send()

    world.interpose(fail)
    world.engines.in_flight[TARGET] = 1
    await world.scale(1)
    await world.until(lambda d: state(d) == "Draining")
    await world.delete_pod(KEEPER)
    found = await world.until(lambda d: condition(d, "RolesReady")["reason"] == "CreateRefused")
    assert "failed calling webhook" in condition(found, "RolesReady")["message"]
    world.engines.in_flight.clear()
    await world.until(lambda d: not operation(d), within=20)
    world.interpose(straight)
    await world.until(lambda d: phase(d) == "Ready", within=35)


async def test_lost_pod_while_refused(world: World) -> None:
    """A replica is not retired on the strength of one that cannot be made: its endpoint would be empty."""
    await world.ready()
    await world.delete(PODS, KEEPER)

    async def refuse(call: Call, send: Send) -> Response:
        if call.is_("create", "pods"):
            raise ApiError(status=403, reason="Forbidden", message="exceeded quota: gpus")
        return await send()

    world.interpose(refuse)
    await world.scale(1)
    await world.kubelet.act()
    found = await world.until(lambda d: condition(d, "RolesReady")["reason"] == "CreateRefused")
    assert condition(found, "RemovalsSettled")["reason"] == "WouldEmptyEndpoint"
    await world.let_pass(300)
    assert labelled(await world.pod(TARGET)) and not operation(await world.deployment())
