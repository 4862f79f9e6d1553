"""Looks and rounds as tasks beside the queue, so that a router that hangs never holds a worker or another deployment.

One task per deployment at most. What was seen is kept for the operation it was seen for and dropped with it; the pass
that asked is woken by the result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

import structlog

from apis.v1alpha1 import labels
from controller.clock import Clock, Instant
from controller.cluster.client import ApiError, Client, NoAnswerError
from controller.cluster.reads import list_pods
from controller.cluster.writes import Fence, unfenced
from controller.member_reader.preflight import MemberTarget
from controller.member_reader.verdict import Reading
from controller.retirement_planner.evidence import DeleteAnswer, Evidence, Round
from controller.retirement_planner.planner import Observe, RemoveRow
from controller.retirement_planner.state import Operation, Target
from controller.routers.base import (
    Adapter,
    Fetch,
    Look,
    Sight,
    Surroundings,
    UnreachableError,
    judge,
)
from controller.routers.ownership import RouterOwnership

LOOK_SECONDS: Final = 5.0
"""A look, and a read begun beside it, each take at most this long."""

ROUTER_SECONDS: Final = 2.0
"""One answer of a router; a look asks for two in a row, all routers at once."""


class Readers(Protocol):
    """Reads members; `controller.member_reader.reader.MemberReaders` in a process."""

    async def read(self, target: MemberTarget, *, timeout: float) -> Reading:
        """One read within `timeout` seconds. Whatever fails is a reading, too."""
        ...


Key = tuple[str, str]
Spawn = Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"]


@dataclass(frozen=True, slots=True)
class Subject:
    """Whose routers and members are asked, and for which operation."""

    namespace: str
    name: str
    uid: str
    engine: str
    adapter: Adapter

    @property
    def key(self) -> Key:
        return (self.namespace, self.name)

    @property
    def selector(self) -> str:
        return f"{labels.INSTANCE}={self.name},{labels.MANAGED_BY}={labels.EBB}"

    def member(self, target: Target) -> MemberTarget:
        """A target as the member reader is told of it."""
        return MemberTarget(
            namespace=self.namespace,
            name=target.name,
            uid=target.uid,
            owner_uid=self.uid,
            container_id=target.container_id,
            restart_count=target.restart_count,
            engine=self.engine,
        )


@dataclass(slots=True)
class _Memory:
    operation: tuple[frozenset[str], datetime]
    evidence: Evidence = field(default_factory=Evidence)
    last_finished: float | None = None
    task: asyncio.Task[None] | None = None


class Observer:
    """Starts observations when they are due and remembers what they found."""

    def __init__(
        self,
        *,
        client: Client,
        readers: Readers,
        ownership: RouterOwnership,
        fetch: Fetch,
        clock: Clock,
        wake: Callable[[Key], None],
        spawn: Spawn,
        fence: Fence = unfenced,
    ) -> None:
        """`spawn` starts a task under supervision: one that fails must end the process, not an operation silently.

        `fence` is asked before anything is taken out of a router.
        """
        self._fence = fence
        self._spawn = spawn
        self._client = client
        self._readers = readers
        self._ownership = ownership
        self._fetch = fetch
        self._clock = clock
        self._wake = wake
        self._memory: dict[Key, _Memory] = {}
        self._log = structlog.get_logger("observer")

    def evidence(self, key: Key, operation: Operation) -> Evidence:
        """What is remembered of exactly this operation."""
        memory = self._memory.get(key)
        if memory is None or memory.operation != _identity(operation):
            return Evidence()
        return memory.evidence

    def record_delete(self, key: Key, operation: Operation, *, uid: str, answer: DeleteAnswer) -> None:
        """Remember what came of a delete."""
        memory = self._remember(key, operation)
        memory.evidence = memory.evidence.with_delete(uid, answer)

    def forget(self, key: Key) -> None:
        memory = self._memory.pop(key, None)
        if memory is not None and memory.task is not None:
            memory.task.cancel()

    def request(
        self,
        subject: Subject,
        operation: Operation,
        *,
        observe: Observe,
        after: float,
        within: float,
        remove_rows: Sequence[RemoveRow] = (),
    ) -> None:
        """Have a look or a round taken `after` seconds from the end of the last one, unless one is under way.

        `within`: seconds that are left to the step; no observation outlives them. `remove_rows` are asked to go at
        once; only the look after that tells whether they went.
        """
        memory = self._remember(subject.key, operation)
        if memory.task is not None and not memory.task.done():
            return
        since = 0.0 if memory.last_finished is None else self._clock.monotonic() - memory.last_finished
        delay = 0.0 if memory.last_finished is None else max(0.0, after - since)
        ends = self._clock.monotonic() + within
        memory.task = self._spawn(
            self._observe(subject, operation, memory, observe, delay, ends, remove_rows),
            f"observe {subject.namespace}/{subject.name}",
        )

    def _remember(self, key: Key, operation: Operation) -> _Memory:
        memory = self._memory.get(key)
        if memory is None or memory.operation != _identity(operation):
            self.forget(key)
            memory = self._memory[key] = _Memory(_identity(operation))
        return memory

    async def _observe(
        self,
        subject: Subject,
        operation: Operation,
        memory: _Memory,
        observe: Observe,
        delay: float,
        ends: float,
        remove_rows: Sequence[RemoveRow],
    ) -> None:
        for row in remove_rows:
            await self._remove(subject, row, within=max(0.1, ends - self._clock.monotonic()))
        await self._clock.sleep(delay)
        bound = max(0.1, min(LOOK_SECONDS, ends - self._clock.monotonic()))
        earlier = memory.evidence.looks
        started_at, started = self._clock.now(), self._clock.monotonic()
        if observe is Observe.LOOK:
            look = await self._look(subject, operation, earlier, bound)
            memory.evidence = memory.evidence.with_look(look)
            self._log.debug("looked", deployment=subject.name, sight=look.sight, reason=look.reason)
        else:
            async with asyncio.TaskGroup() as group:
                looking = group.create_task(self._look(subject, operation, earlier, bound))
                reading = group.create_task(self._read(subject, operation, bound))
            seen = Round(
                look=looking.result(),
                readings=reading.result(),
                started_at=started_at.earliest,
                started=started,
                finished=self._clock.monotonic(),
            )
            memory.evidence = memory.evidence.with_round(seen)
            self._log.debug(
                "read",
                deployment=subject.name,
                verdict=seen.verdict,
                reason=seen.reason,
                sight=seen.look.sight,
            )
        memory.last_finished = self._clock.monotonic()
        memory.task = None
        self._wake(subject.key)

    async def _read(self, subject: Subject, operation: Operation, bound: float) -> Mapping[str, Reading]:
        targets = [subject.member(target) for target in operation.targets]
        readings = await asyncio.gather(*(self._readers.read(target, timeout=bound) for target in targets))
        return {target.uid: reading for target, reading in zip(targets, readings, strict=True)}

    async def _look(
        self, subject: Subject, operation: Operation, earlier: Sequence[Look], bound: float
    ) -> Look:
        started_at, started = self._clock.now(), self._clock.monotonic()

        def span() -> tuple[Instant, Instant, float, float]:
            return started_at, self._clock.now(), started, self._clock.monotonic()

        try:
            async with asyncio.timeout(bound):
                before = await self._surroundings(subject, bound)
                answers = await asyncio.gather(
                    *(
                        subject.adapter.ask(router, fetch=self._fetch, timeout=min(ROUTER_SECONDS, bound / 2))
                        for router in before.routers
                    )
                )
                after = await self._surroundings(subject, bound)
        except Exception as error:
            # What a router or a stranger's Pod answers must never end the process of everybody.
            if not isinstance(error, ApiError | NoAnswerError | TimeoutError):
                self._log.exception("a look met a defect", deployment=subject.name)
            why = f"it took more than {bound:g} s" if isinstance(error, TimeoutError) else str(error)
            started_at_, finished_at, started_, finished = span()
            return Look(
                sight=Sight.UNKNOWN,
                reason=f"the routers could not be looked at: {why}",
                answers=(),
                started_at=started_at_,
                finished_at=finished_at,
                started=started_,
                finished=finished,
            )
        return judge(
            answers=answers,
            before=before,
            after=after,
            target_uids=operation.target_uids,
            earlier=earlier,
            span=span(),
        )

    async def _surroundings(self, subject: Subject, bound: float) -> Surroundings:
        found = await list_pods(
            self._client, namespace=subject.namespace, selector=subject.selector, timeout=bound
        )
        labelled = [pod for pod in found if pod.role == labels.ROUTER_COMPONENT]
        routers = await self._ownership.sort(labelled, deployment_uid=subject.uid)
        return Surroundings(
            routers=(*routers.ours, *routers.unplaced),
            pods=tuple(pod for pod in found if pod.owner_uid == subject.uid),
        )

    async def _remove(self, subject: Subject, row: RemoveRow, *, within: float) -> None:
        """Ask a router Pod to drop a row. Its answer proves nothing, and neither does none; the next look tells."""
        bound = min(ROUTER_SECONDS, within)
        try:
            async with asyncio.timeout(within):
                surroundings = await self._surroundings(subject, bound)
                for router in surroundings.routers:
                    if router.name == row.router:
                        timeout = min(bound, self._fence())
                        await subject.adapter.remove(router, row.address, fetch=self._fetch, timeout=timeout)
        except (ApiError, NoAnswerError, UnreachableError, TimeoutError) as error:
            why = str(error) or f"no answer within {within:g} s"
            self._log.warning("a row was not removed", router=row.router, address=row.address, error=why)


def _identity(operation: Operation) -> tuple[frozenset[str], datetime]:
    return operation.target_uids, operation.started_at
