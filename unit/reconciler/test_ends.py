"""Retirements that end otherwise than planned: given up, taken back, lost from outside, refused, left unanswered."""

from __future__ import annotations

from typing import Final

import pytest

from controller.cluster.client import ApiError, NoAnswerError, Response
from controller.cluster.resources import PODS
from unit.reconciler.deployments import condition, labelled, operation, phase, settled, state, states_stored
from unit.reconciler.wire import Call, Send
from unit.reconciler.world import KEEPER, TARGET, WHOLE_PATH, World

pytestmark = pytest.mark.control_plane

BEFORE_THE_POINT: Final = ["Admitted", "Disqualified", "Withdrawing", "Draining"]
SHORTEST: Final = {"withdrawSeconds": 12, "drainSeconds": 10, "settleSeconds": 5, "totalSeconds": 27}


async def still_serves(world: World, uid: str) -> None:
    """The target is what it was before, and offered to service."""
    pod = await world.pod(TARGET)
    assert pod.uid == uid and labelled(pod) and not pod.terminating


class TestGivenUp:
    """Budgets that are spent."""

    async def test_busy_to_the_end(self, world: World) -> None:
        """A5, D1, D3 Busy for all of draining: Aborted with what it held, served again, left in peace, redeclared."""
        await world.ready(retirement=SHORTEST | {"drainSeconds": 60, "totalSeconds": 77})
        uid = (await world.pod(TARGET)).uid
        world.engines.in_flight[TARGET] = 3
        await world.scale(1)
        found = await world.until(lambda d: state(d) == "Aborted", within=100)
        assert 65 <= world.clock.monotonic() < 70
        reason = operation(found)["reason"]
        assert "draining did not finish within 60 s: the engine holds 3 in flight" in reason
        assert f"kubectl delete pod {TARGET}" in reason
        assert condition(found, "RemovalsSettled")["reason"] == "RetirementAborted"
        await still_serves(world, uid)
        world.engines.in_flight.clear()
        mark, reads = world.mark, len(world.engines.reads)
        await world.let_pass(3600)
        assert world.writes(since=mark, events=True) == [] and len(world.engines.reads) == reads
        await world.scale(2)
        await world.until(settled)
        await still_serves(world, uid)
        assert not operation(await world.deployment())

    async def test_policy_of_the_spec(self, world: World) -> None:
        """The budgets are those of `spec.retirement` at admission; an edit in the middle moves none."""
        await world.ready(retirement=SHORTEST)
        world.engines.in_flight[TARGET] = 1
        await world.scale(1)
        await world.until(lambda d: state(d) == "Draining")
        await world.edit(
            {"op": "replace", "path": "/spec/retirement/drainSeconds", "value": 15},
            {"op": "replace", "path": "/spec/retirement/totalSeconds", "value": 32},
        )
        found = await world.until(lambda d: state(d) == "Aborted", within=30)
        assert "draining did not finish within 10 s" in operation(found)["reason"]

    async def test_label_that_stays(self, world: World) -> None:
        """A4 The label cannot be taken off: Admitted for 30 s, startedAt unmoved, then Aborted; nothing was deleted."""
        await world.ready()
        uid = (await world.pod(TARGET)).uid

        async def refuse(call: Call, send: Send) -> Response:
            if call.is_("patch", "pods"):
                raise ApiError(status=403, reason="Forbidden", message="patching pods is forbidden")
            return await send()

        world.interpose(refuse)
        await world.scale(1)
        found = await world.until(lambda d: state(d) == "Aborted")
        assert 30 <= world.clock.monotonic() < 32
        assert states_stored(world.writes()) == ["Admitted", "Aborted"]
        reason = operation(found)["reason"]
        assert "patching pods is forbidden" in reason and "the replica is kept" in reason
        await still_serves(world, uid)

    async def test_without_a_router(self, world: World) -> None:
        """D5 No router: held with its reason and the label on, Aborted after 30 s, both Pods as they were."""
        await world.ready(router=None)
        before = [await world.pod(name) for name in (KEEPER, TARGET)]
        await world.scale(1)
        found = await world.until(lambda d: state(d) == "Aborted")
        assert "connections established through the Service" in operation(found)["reason"]
        assert [await world.pod(name) for name in (KEEPER, TARGET)] == before


class TestTakenBack:
    """The spec wants the replica again."""

    @pytest.mark.parametrize("when", BEFORE_THE_POINT)
    async def test_before_the_delete(self, world: World, when: str) -> None:
        """B11 Two again in any state before the point: cancelled, the same Pod serves again, the record is cleared."""
        await world.ready()
        uid = (await world.pod(TARGET)).uid
        world.engines.in_flight[TARGET] = 1
        world.once_stored(when, lambda: world.scale(2))
        await world.scale(1)
        await world.until(settled)
        await still_serves(world, uid)
        assert states_stored(world.writes())[-2:] == [when, ""]
        assert "RetirementCancelled" in await world.event_reasons()
        mark = world.mark
        await world.let_pass(300)
        assert world.writes(since=mark) == []

    async def test_in_deleting_under_a_new_process(self, world: World) -> None:
        """B11 Two again in `Deleting` with no delete sent, found by another process: cancelled as well."""
        await world.ready()
        uid = (await world.pod(TARGET)).uid
        world.once_stored("Deleting", world.die)
        await world.scale(1)
        await world.until(lambda _: world.crashed)
        await world.kill()
        await world.scale(2)
        await world.start()
        await world.until(settled)
        await still_serves(world, uid)


class TestLost:
    """Somebody else takes the target away."""

    @pytest.mark.parametrize("when", BEFORE_THE_POINT)
    async def test_deleted(self, world: World, when: str) -> None:
        """D2 The target is deleted by hand in any state before the point: cleared, told, never deleted by us."""
        await world.ready()
        world.kubelet.not_ended.add(TARGET)
        world.engines.in_flight[TARGET] = 1
        world.once_stored(when, lambda: world.delete(PODS, TARGET))
        await world.scale(1)
        await world.until(settled)
        world.kubelet.not_ended.clear()
        await world.let_pass(60)
        assert await world.pod_names() == [KEEPER]
        assert [write for write in world.writes() if write.verb == "delete"] == []
        reasons = await world.event_reasons()
        assert "RetirementLost" in reasons and "RetirementCompleted" not in reasons

    @pytest.mark.parametrize("how", ["gone", "ended"])
    async def test_gone_or_ended(self, world: World, how: str) -> None:
        """D2 A target that vanished, or whose containers ended by themselves, is lost just the same."""
        await world.ready()
        pod = await world.pod(TARGET)

        async def lose() -> None:
            if how == "gone":
                await world.kubelet.end(pod)
            else:
                await world.kubelet.report(TARGET, {"phase": "Failed"})

        world.once_stored("Withdrawing", lose)
        await world.scale(1)
        await world.until(settled)
        assert "RetirementLost" in await world.event_reasons()
        assert await world.pod_names() == [KEEPER]

    async def test_after_it_was_given_up(self, world: World) -> None:
        """D4 An aborted replica deleted by hand: the record is cleared, and the ordinal is free."""
        await world.ready(retirement=SHORTEST)
        world.engines.in_flight[TARGET] = 1
        await world.scale(1)
        await world.until(lambda d: state(d) == "Aborted")
        await world.delete_pod(TARGET)
        await world.until(settled)
        await world.scale(2)
        await world.until(lambda d: phase(d) == "Ready" and d["status"]["roles"][0]["ready"] == 2)
        assert (
            len(
                {
                    w.answer["metadata"]["uid"]
                    for w in world.writes()
                    if w.verb == "create" and w.name == TARGET
                }
            )
            == 2
        )


def forbidden() -> Exception:
    return ApiError(status=403, reason="Forbidden", message=f'pods "{TARGET}" is forbidden: no deletes today')


class TestDeletes:
    """What the API server says to the delete."""

    async def test_refused_to_the_end(self, world: World) -> None:
        """Refused until the deadline: Aborted with the server's sentence; evidence is fresh for every attempt."""
        await world.ready(retirement=SHORTEST)
        uid = (await world.pod(TARGET)).uid

        async def refuse(call: Call, send: Send) -> Response:
            if call.is_("delete", "pods"):
                raise forbidden()
            return await send()

        world.interpose(refuse)
        await world.scale(1)
        found = await world.until(lambda d: state(d) == "Aborted")
        assert 27 <= world.clock.monotonic() < 31
        assert "no delete was accepted: 403" in operation(found)["reason"]
        assert "no deletes today" in operation(found)["reason"]
        await still_serves(world, uid)

    async def test_refused_for_a_while(self, world: World) -> None:
        """Refused for a minute, then taken: the same operation ends as if nothing had been."""
        await world.ready()
        attempts = 0

        async def refuse(call: Call, send: Send) -> Response:
            nonlocal attempts
            if call.is_("delete", "pods"):
                attempts += 1
                if world.clock.monotonic() < 60:
                    raise forbidden()
            return await send()

        world.interpose(refuse)
        await world.scale(1)
        await world.until(settled, within=90)
        assert states_stored(world.writes()) == WHOLE_PATH
        # Every two seconds at most, and not while the evidence that aged is gathered again.
        assert 10 < attempts <= 30

    async def test_never_answered(self, world: World) -> None:
        """L2 A delete that is never answered: none is sent past the deadline, and 15 s later it aborts."""
        await world.ready(retirement=SHORTEST)
        uid = (await world.pod(TARGET)).uid
        sent: list[float] = []

        async def swallow(call: Call, send: Send) -> Response:
            if call.is_("delete", "pods"):
                sent.append(world.clock.monotonic())
                raise NoAnswerError("DELETE: a webhook does not answer")
            return await send()

        world.interpose(swallow)
        await world.scale(1)
        found = await world.until(lambda d: state(d) == "Aborted", within=60)
        assert max(sent) < 28 and world.clock.monotonic() < 46
        assert "a webhook does not answer" in operation(found)["reason"]
        await still_serves(world, uid)

    @pytest.mark.parametrize("done", [True, False], ids=["after it was done", "before it was done"])
    async def test_without_an_answer(self, world: World, done: bool) -> None:
        """No answer to the delete, whether it had its effect or not: it goes on and does not abort."""
        await world.ready(retirement=SHORTEST)
        attempts = 0

        async def swallow(call: Call, send: Send) -> Response:
            nonlocal attempts
            if call.is_("delete", "pods"):
                attempts += 1
                if done:
                    await send()
                if done or attempts < 5:
                    raise NoAnswerError("DELETE: the connection was reset")
            return await send()

        world.interpose(swallow)
        await world.scale(1)
        await world.until(settled)
        # Not done, it is repeated every two seconds.
        assert attempts == (1 if done else 5)
        assert "Aborted" not in states_stored(world.writes())
        assert await world.pod_names() == [KEEPER]
