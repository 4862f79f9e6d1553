"""Histories nobody thought of: users, nodes, routers and the process itself do as they please, then peace comes."""

from __future__ import annotations

from random import Random
from typing import Final

import pytest

from controller.cluster.client import ApiError, NoAnswerError, Response
from unit.reconciler.deployments import Raw, operation, phase, settled
from unit.reconciler.wire import Call, Send, straight
from unit.reconciler.world import KEEPER, Clients, World, new_world

pytestmark = pytest.mark.control_plane

STEPS: Final = 30


class History:
    """What happens to a world, drawn from a seed. `told` says what it was, and when."""

    def __init__(self, world: World, random: Random) -> None:
        self.told: list[str] = []
        self._world = world
        self._random = random

    async def step(self) -> None:
        acts = (
            self._scale,
            self._load,
            self._let_pass,
            self._let_pass,
            self._delete_pod,
            self._release,
            self._restart,
            self._crash,
            self._trouble,
            self._lose_routers,
            self._probe,
        )
        act = self._random.choice(acts)
        began = self._world.clock.monotonic()
        self.told.append(f"{began:7.1f} s {act.__name__.strip('_')}: {await act()}")

    async def peace(self) -> None:
        """Everything works from now on, and all that the spec may have given up is declared again."""
        world = self._world
        world.engines.in_flight.clear()
        world.routers.unreachable = False
        await self._release()
        await world.scale(3)
        for name in await world.pod_names():
            pod = await world.pod(name)
            if pod.node and not pod.terminating:
                await world.kubelet.set_ready(name, True)

    async def _scale(self) -> int:
        replicas = self._random.randint(0, 3)
        await self._world.scale(replicas)
        return replicas

    async def _load(self) -> dict[str, int]:
        busy = [name for name in await self._world.pod_names() if self._random.random() < 0.5]
        self._world.engines.in_flight = {name: self._random.randint(0, 2) for name in busy}
        return self._world.engines.in_flight

    async def _let_pass(self) -> float:
        seconds = self._random.choice([0.5, 3.0, 10.0, 40.0])
        await self._world.let_pass(seconds)
        return seconds

    async def _delete_pod(self) -> str:
        """By hand; half of those that are deleted stay terminating for a while."""
        name = self._random.choice(await self._world.pod_names() or [""])
        if name:
            self._world.kubelet.not_ended = {name} if self._random.random() < 0.5 else set()
            await self._world.delete_pod(name)
        return name

    async def _release(self) -> None:
        self._world.kubelet.not_ended = set()
        await self._world.kubelet.act()

    async def _restart(self) -> None:
        await self._world.restart()

    async def _crash(self) -> str:
        """Killed around one of the next writes, if there is one within 15 s."""
        left, after = self._random.randint(1, 4), self._random.random() < 0.5

        async def die(call: Call, send: Send) -> Response:
            nonlocal left
            left -= call.writes
            if left or not call.writes:
                return await send()
            if after:
                await send()
            return await self._world.die()

        self._world.interpose(die)
        await self._world.let_pass(15)
        crashed = self._world.crashed
        self._world.interpose(straight)
        if crashed:
            await self._world.restart()
        return f"{'after' if after else 'before'} a write" if crashed else "no write came"

    async def _trouble(self) -> None:
        """Ten seconds in which every fourth call fails, whether it has its effect or not."""
        random = self._random

        async def fail(call: Call, send: Send) -> Response:
            roll = random.random()
            if roll < 0.16:
                if roll < 0.08:
                    await send()
                raise NoAnswerError("the connection was reset")
            if roll < 0.24:
                status = random.choice([403, 409, 429, 500])
                raise ApiError(status=status, reason="Trouble", message="it is a bad day")
            return await send()

        self._world.interpose(fail)
        await self._world.let_pass(10)
        self._world.interpose(straight)

    async def _lose_routers(self) -> bool:
        self._world.routers.unreachable = self._random.random() < 0.3
        return self._world.routers.unreachable

    async def _probe(self) -> str:
        """A Pod that runs turns Ready, or ceases to be."""
        name = self._random.choice(await self._world.pod_names() or [""])
        pod = await self._world.pod(name) if name else None
        if pod is None or not pod.node or pod.terminating:
            return ""
        ready = self._random.random() < 0.7
        await self._world.kubelet.set_ready(name, ready)
        return f"{name} {ready}"


def at_rest(deployment: Raw) -> bool:
    whole = phase(deployment) == "Ready" and settled(deployment)
    return whole and not operation(deployment) and "departing" not in deployment["status"]


@pytest.mark.parametrize("seed", [3, 24])
async def test_history(clients: Clients, seed: int) -> None:
    """Whatever happened, no invariant breaks, and in peace it comes to rest: three replicas, then one, then quiet."""
    async with new_world(clients) as world:
        await world.ready()
        history = History(world, Random(seed))
        try:
            for _ in range(STEPS):
                await history.step()
            await history.peace()
            await world.until(at_rest, within=900)
            await world.scale(1)
            await world.until(at_rest, within=900)
            assert await world.pod_names() == [KEEPER]
            mark = world.mark
            await world.let_pass(300)
            assert world.writes(since=mark) == []
            world.assert_sound()
        except BaseException as error:
            error.add_note("\n".join([f"seed {seed}", *history.told]))
            raise
