"""Filling seats that nobody holds, and what becomes of those that the API server does not let us fill.

A create that is refused will mostly be refused again, and every Event of a Pod brings a pass: so the same seats of the
same spec are not tried again before a wait that grows up to a minute.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from apis.v1alpha1.model_deployment import ModelDeploymentSpec
from controller.attempts import Attempts
from controller.caches import Key
from controller.clock import Clock
from controller.pods import Pods
from controller.situation import Snapshot, render_seat, seats_of
from controller.snapshot import Seat

FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Refusal:
    """The answer to the last try: of which seats, in whose words, and when (monotonic) it is asked again."""

    seats: tuple[Seat, ...]
    generation: int
    sentences: tuple[str, ...]
    tries: int
    again_at: float


class Filling:
    """Creates Pods on empty seats. What it remembers may be lost at the cost of one more try."""

    def __init__(self, *, pods: Pods, clock: Clock, random: Random) -> None:
        self._pods = pods
        self._clock = clock
        self._random = random
        self._refusals: dict[Key, Refusal] = {}

    def refused(self, key: Key) -> tuple[str, ...]:
        """Why seats could not be filled, mostly in the API server's words; empty when they could."""
        refusal = self._refusals.get(key)
        return () if refusal is None else refusal.sentences

    def again(self, key: Key) -> float | None:
        """In how many seconds refused seats are tried again, None when none are."""
        refusal = self._refusals.get(key)
        return None if refusal is None else max(0.1, refusal.again_at - self._clock.monotonic())

    def forget(self, key: Key) -> None:
        self._refusals.pop(key, None)

    async def fill(self, snapshot: Snapshot, spec: ModelDeploymentSpec, attempts: Attempts) -> bool:
        """Clear seats of Pods that ended by themselves, and fill the empty ones; returns whether any was cleared."""
        plan = seats_of(snapshot)
        held = snapshot.operation.target_uids if snapshot.operation else frozenset()
        ended = [pod for pod in plan.clean_up if pod.uid not in held]
        with attempts:
            await self._pods.clean_up(ended, "it has ended")
        with attempts:
            await self._create(snapshot, spec, plan.create)
        return bool(ended)

    async def _create(self, snapshot: Snapshot, spec: ModelDeploymentSpec, seats: tuple[Seat, ...]) -> None:
        key, generation = snapshot.key, snapshot.deployment.generation
        before = self._refusals.get(key)
        same = before is not None and (before.seats, before.generation) == (seats, generation)
        if before is not None and same and self._clock.monotonic() < before.again_at:
            return
        sentences = await self._pods.create(
            seats, owner=snapshot.owner, render=lambda seat: render_seat(snapshot, spec, seat)
        )
        if not sentences:
            self._refusals.pop(key, None)
            return
        tries = before.tries + 1 if before is not None and same else 1
        wait = min(FIRST_SECONDS * 2 ** min(tries - 1, 8), LONGEST_SECONDS) * self._random.uniform(0.75, 1.0)
        self._refusals[key] = Refusal(seats, generation, sentences, tries, self._clock.monotonic() + wait)
