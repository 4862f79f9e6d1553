"""How long anything inside an operation may wait, and what is told while it does."""

from __future__ import annotations

from typing import Final

import pytest

from controller.clock import parse_time
from controller.member_reader.preflight import MemberTarget
from controller.member_reader.verdict import Reading
from unit.reconciler.deployments import condition, labelled, operation, phase, replicas_of, state
from unit.reconciler.outside import Routers
from unit.reconciler.world import KEEPER, TARGET, Clients, World, new_world

pytestmark = pytest.mark.control_plane

SILENT: Final = "the engine served no vllm:num_requests_running, no vllm:num_requests_waiting"


class Timed(Routers):
    """Notes when each call began and what it was given, in seconds."""

    def __init__(self, world: World) -> None:
        super().__init__(world.api, world.namespace, world.book)
        self.asked: list[tuple[float, float]] = []
        self._clock = world.clock

    async def __call__(self, method: str, url: str, *, timeout: float) -> tuple[int, bytes]:
        self.asked.append((self._clock.monotonic(), timeout))
        return await super().__call__(method, url, timeout=timeout)


def cut(asked: list[tuple[float, float]], ends: float) -> list[float]:
    """The bounds of those calls that were given less than the first, after a check that none outlives `ends`."""
    assert asked, "nothing was asked"
    for at, timeout in asked:
        # 0.1 s is the least that a call is given: one that could not be answered at all would say nothing.
        assert timeout <= max(0.1, ends - at + 0.001), f"{timeout:g} s with {ends - at:g} s left"
    return [timeout for _, timeout in asked if timeout < asked[0][1]]


async def test_calls_to_routers(clients: Clients) -> None:
    """A7 29 s into a withdrawal a router has 1 s left to answer, whichever call it is."""
    async with new_world(clients, started=False) as world:
        routers = world.routers = Timed(world)
        await world.start()
        await world.ready()
        routers.kept_rows.add((await world.pod(TARGET)).ip)
        routers.unremovable = True
        routers.asked.clear()
        await world.scale(1)
        found = await world.until(lambda d: bool(operation(d)))
        began = parse_time(operation(found)["startedAt"])
        ends = world.clock.monotonic() + 30 - (world.clock.now().earliest - began).total_seconds()
        await world.until(lambda d: state(d) == "Aborted")
        assert cut(routers.asked, ends)


async def test_reads_of_members(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A7 A member that is read near the end of the drain budget has no longer to answer than the budget."""
    await world.ready()
    asked: list[tuple[float, float]] = []
    plain = world.engines.read

    async def read(target: MemberTarget, *, timeout: float) -> Reading:
        asked.append((world.clock.monotonic(), timeout))
        return await plain(target, timeout=timeout)

    monkeypatch.setattr(world.engines, "read", read)
    world.engines.in_flight[TARGET] = 1
    await world.scale(1)
    found = await world.until(lambda d: state(d) == "Draining")
    began = parse_time(operation(found)["phaseStartedAt"])
    ends = world.clock.monotonic() + 240 - (world.clock.now().earliest - began).total_seconds()
    await world.until(lambda d: state(d) == "Aborted", within=300)
    assert cut(asked, ends)


async def test_statistics_switched_off(world: World) -> None:
    """N11 The status warns before anything happens; the removal is held naming the gauges, and ends aborted, kept."""
    await world.ready(roles=[replicas_of(2, extraArgs=["--disable-log-stats"])])
    valid = condition(await world.deployment(), "SpecValid")
    assert (valid["status"], valid["reason"]) == ("True", "ValidWithWarnings")
    assert "spec.roles[0].extraArgs[0]: --disable-log-stats" in valid["message"]
    world.engines.mute[TARGET] = SILENT
    await world.scale(1)
    found = await world.until(lambda d: SILENT in operation(d).get("reason", ""))
    assert state(found) == "Draining"
    found = await world.until(lambda d: state(d) == "Aborted", within=300)
    assert SILENT in operation(found)["reason"]
    assert await world.pod_names() == [KEEPER, TARGET] and labelled(await world.pod(TARGET))


async def test_label_is_there_without_a_controller(world: World) -> None:
    """K1 A Pod is labelled by its very creation: nothing has to be up for it to serve."""
    await world.create(router=None)
    await world.settle()
    mark = world.mark
    await world.kill()
    assert labelled(await world.pod(KEEPER)) and labelled(await world.pod(TARGET))
    patched = [write for write in world.writes() if write.is_of("pods") and write.verb == "patch"]
    assert patched == [] and world.writes(since=mark) == []


async def test_label_of_a_pod_that_is_not_ready(world: World) -> None:
    """K1 A single Pod that is not Ready, or not yet, keeps its label: readiness is left to Kubernetes and routers."""
    world.kubelet.not_started.add(TARGET)
    await world.create(router=None)
    await world.settle()
    assert labelled(await world.pod(TARGET))
    world.kubelet.not_started.clear()
    await world.until(lambda d: phase(d) == "Ready")
    await world.kubelet.set_ready(TARGET, False)
    await world.let_pass(120)
    assert labelled(await world.pod(TARGET))
    assert not [write for write in world.writes() if write.is_of("pods") and write.verb == "patch"]
