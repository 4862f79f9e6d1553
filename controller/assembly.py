"""Everything that brings deployments to their specs, wired in one place; its edges to the world are given.

A process gives it a real API server, real routers and engines; tests of the whole give it what they script.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any

import structlog

from controller.caches import Caches, Key
from controller.clock import Clock
from controller.cluster.client import ApiError, Client, NoAnswerError
from controller.cluster.leader import UNELECTED, Leadership, LeaseLostError
from controller.cluster.resources import EVENTS
from controller.cluster.work_queue import ShutDownError, WorkQueue
from controller.cluster.writes import Writer
from controller.filling import Filling
from controller.infrastructure import Infrastructure
from controller.observer import Observer, Readers
from controller.pods import Pods
from controller.reconciler import Reconciler
from controller.retiring import Retiring
from controller.rolling import Rolling
from controller.routers.base import Fetch
from controller.routers.ownership import RouterOwnership
from controller.telemetry.events import EventRecorder
from controller.telemetry.metrics import Metrics


class Controller:
    """Informers, queue and workers of one process. `instance` names it in its Events.

    `leadership` is asked before everything that destroys; without one the process is taken for the only one.
    """

    def __init__(
        self,
        *,
        client: Client,
        fetch: Fetch,
        readers: Readers,
        clock: Clock,
        random: Random,
        metrics: Metrics,
        instance: str,
        namespace: str | None = None,
        leadership: Leadership = UNELECTED,
    ) -> None:
        self.queue: WorkQueue[Key] = WorkQueue(clock=clock, random=random)
        self.caches = Caches(
            client=client, clock=clock, random=random, wake=self.queue.add, namespace=namespace
        )
        self._clock = clock
        self._metrics = metrics
        self._group: asyncio.TaskGroup | None = None
        writer = Writer(client, applied=self.caches.applied, fence=leadership.left)
        pods = Pods(client=client, writer=writer)
        self._events = EventRecorder(
            create=lambda namespace, event: writer.create(EVENTS, event, namespace=namespace),
            clock=clock,
            random=random,
            instance=instance,
        )
        ownership = RouterOwnership(client)
        observer = Observer(
            client=client,
            readers=readers,
            ownership=ownership,
            fetch=fetch,
            clock=clock,
            wake=self.queue.add,
            spawn=self._spawn,
            fence=leadership.left,
        )
        retiring = Retiring(
            client=client,
            pods=pods,
            observer=observer,
            clock=clock,
            handing_over=lambda: leadership.handing_over,
        )
        self._reconciler = Reconciler(
            client=client,
            caches=self.caches,
            ownership=ownership,
            writer=writer,
            infrastructure=Infrastructure(client=client, caches=self.caches, writer=writer),
            pods=pods,
            filling=Filling(pods=pods, clock=clock, random=random),
            retiring=retiring,
            rolling=Rolling(pods=pods),
            events=self._events,
            clock=clock,
            metrics=metrics,
        )
        metrics.watch_leader(lambda: float(leadership.leads))
        metrics.watch_queue(lambda: float(len(self.queue)))
        metrics.watch_informers({i.resource.plural: i.silent_for for i in self.caches.informers})

    def start(
        self, group: asyncio.TaskGroup, *, workers: int, lead: Callable[[], Awaitable[None]] | None = None
    ) -> asyncio.Task[None]:
        """Start every loop in `group`, which ends with the first that fails.

        Workers begin once `lead` returns, which is called with warm caches. The task returned ends once the queue is
        shut down and the passes under way are over.
        """
        self._group = group
        for informer in self.caches.informers:
            self._spawn(informer.run(), f"informer {informer.resource.plural}")
        self._spawn(self._events.run(), "events")
        return self._spawn(self._work(workers, lead), "workers")

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        assert self._group is not None, "nothing runs before start"
        return self._group.create_task(work, name=name)

    async def _work(self, count: int, lead: Callable[[], Awaitable[None]] | None) -> None:
        """Start the workers once every cache has had its first list: an empty cache is not an empty cluster."""
        for informer in self.caches.informers:
            await informer.synced.wait()
        if lead is not None:
            await lead()
        # A group, so that none goes on working when another has met the end of the lease.
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(self._worker(), name=f"worker {number}")

    async def _worker(self) -> None:
        log = structlog.get_logger("worker")
        while True:
            try:
                key = await self.queue.get()
            except ShutDownError:
                return
            began, outcome = self._clock.monotonic(), "success"
            try:
                result = await self._reconciler.reconcile(key)
            except (ApiError, NoAnswerError) as error:
                outcome = "retry"
                wait = self.queue.add_rate_limited(key, at_least=getattr(error, "retry_after", None))
                log.warning(
                    "a pass failed and comes again", deployment="/".join(key), after=wait, error=str(error)
                )
            except LeaseLostError:
                raise  # nothing that this process knows may be acted on any more
            except Exception:
                # A defect that one object triggers must not stop the others: logged whole, counted, and tried again.
                outcome = "error"
                wait = self.queue.add_rate_limited(key)
                log.exception("a pass met a defect and comes again", deployment="/".join(key), after=wait)
            else:
                if result.failed:
                    outcome = "retry"
                    wait = self.queue.add_rate_limited(key, at_least=result.retry_after)
                    log.warning(
                        "a pass could not do all and comes again",
                        deployment="/".join(key),
                        after=wait,
                        error=result.failed,
                    )
                else:
                    self.queue.forget(key)
                if result.after == 0.0:
                    self.queue.add(key)
                elif result.after is not None:
                    self.queue.add_after(key, result.after)
            finally:
                self.queue.done(key)
            self._metrics.reconciled(outcome=outcome, seconds=self._clock.monotonic() - began)
