"""The composition root: everything is made here, started under one task group, and stopped in order.

A loop that ends by an exception takes the process with it: a controller that is half alive is worse than one that the
kubelet restarts.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Coroutine
from random import Random
from typing import Any, Final

import structlog

from controller.caches import Caches, Key
from controller.clock import Clock
from controller.cluster.client import ApiError, NoAnswerError
from controller.cluster.credentials import load_credentials
from controller.cluster.http_client import HttpClient, user_agent
from controller.cluster.resources import EVENTS
from controller.cluster.server_time import ServerTime, SystemClock
from controller.cluster.work_queue import ShutDownError, WorkQueue
from controller.cluster.writes import Writer
from controller.infrastructure import Infrastructure
from controller.member_reader.reader import MemberReaders
from controller.observer import Observer
from controller.pods import Pods
from controller.reconciler import Reconciler
from controller.retiring import Retiring
from controller.routers.http import PodFetch
from controller.settings import Settings
from controller.telemetry.events import EventRecorder
from controller.telemetry.logging import configure_logging
from controller.telemetry.metrics import Metrics
from controller.telemetry.server import serve_telemetry, telemetry_app

STOP_SECONDS: Final = 20.0
"""How long passes that are under way may take to end after a signal."""


class _Stop(Exception):  # noqa: N818 - no error: how a signal ends the task group
    """A signal asked the process to end."""


def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Raises what a loop died of."""
    configure_logging(log_format=settings.log_format, level=settings.log_level)
    try:
        import uvloop
    except ImportError:
        asyncio.run(serve(settings))
    else:
        uvloop.run(serve(settings))


async def serve(settings: Settings) -> None:
    """The whole controller, until it is told to stop."""
    log = structlog.get_logger("controller")
    random = Random()  # noqa: S311 - jitter, and names of Events
    metrics = Metrics()
    metrics.watch_process()
    server_time = ServerTime()
    clock = SystemClock(server_time)
    credentials = await load_credentials(kubeconfig=settings.kubeconfig, context=settings.context)
    queue: WorkQueue[Key] = WorkQueue(clock=clock, random=random)
    async with (
        HttpClient(credentials, server_time=server_time, observe=metrics.requested) as client,
        PodFetch() as fetch,
    ):
        # One answer gives the server's time before anything is stamped, and says at once what is wrong.
        version = (await client.request("GET", "/version")).body
        log.info("connected", kubernetes=version.get("gitVersion"), controller=user_agent())
        caches = Caches(
            client=client, clock=clock, random=random, wake=queue.add, namespace=settings.namespace
        )
        writer = Writer(client, applied=caches.applied)
        pods = Pods(writer)
        recorder = EventRecorder(
            create=lambda namespace, event: writer.create(EVENTS, event, namespace=namespace),
            clock=clock,
            random=random,
            instance=socket.gethostname(),
        )
        metrics.watch_queue(lambda: float(len(queue)))
        metrics.watch_informers({i.resource.plural: i.silent_for for i in caches.informers})
        app = telemetry_app(
            live={"loop": lambda: None},
            ready={"caches": lambda: None if caches.synced else "the first lists are not complete yet"},
            registry=metrics.registry,
        )
        async with serve_telemetry(app, bind=settings.bind) as address:
            log.info("serving /healthz, /readyz, /metrics", host=address.host or "*", port=address.port)
            try:
                async with asyncio.TaskGroup() as group:

                    def spawn(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
                        return group.create_task(work, name=name)

                    observer = Observer(
                        client=client,
                        readers=MemberReaders(client=client, clock=clock),
                        fetch=fetch,
                        clock=clock,
                        wake=queue.add,
                        spawn=spawn,
                    )
                    reconciler = Reconciler(
                        client=client,
                        caches=caches,
                        writer=writer,
                        infrastructure=Infrastructure(client=client, caches=caches, writer=writer),
                        pods=pods,
                        retiring=Retiring(client=client, pods=pods, observer=observer, clock=clock),
                        events=recorder,
                        clock=clock,
                        metrics=metrics,
                    )
                    for informer in caches.informers:
                        group.create_task(informer.run(), name=f"informer {informer.resource.plural}")
                    group.create_task(recorder.run(), name="events")
                    workers = group.create_task(
                        _work(settings.workers, caches, queue, reconciler, metrics, clock), name="workers"
                    )
                    group.create_task(_until_signalled(queue, workers, log), name="signals")
            except* _Stop:
                log.info("stopped")


async def _until_signalled(queue: WorkQueue[Key], workers: asyncio.Task[None], log: Any) -> None:
    """Wait for a signal, let the passes under way end, then end the group."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
    log.info("stopping: passes under way may end", seconds=STOP_SECONDS)
    queue.shut_down()
    await asyncio.wait({workers}, timeout=STOP_SECONDS)
    raise _Stop


async def _work(
    count: int,
    caches: Caches,
    queue: WorkQueue[Key],
    reconciler: Reconciler,
    metrics: Metrics,
    clock: Clock,
) -> None:
    """Start the workers once every cache has had its first list: an empty cache is not an empty cluster."""
    for informer in caches.informers:
        await informer.synced.wait()
    await asyncio.gather(*(_worker(queue, reconciler, metrics, clock) for _ in range(count)))


async def _worker(queue: WorkQueue[Key], reconciler: Reconciler, metrics: Metrics, clock: Clock) -> None:
    log = structlog.get_logger("worker")
    while True:
        try:
            key = await queue.get()
        except ShutDownError:
            return
        began, outcome = clock.monotonic(), "success"
        try:
            result = await reconciler.reconcile(key)
        except (ApiError, NoAnswerError) as error:
            outcome = "retry"
            wait = queue.add_rate_limited(key, at_least=getattr(error, "retry_after", None))
            log.warning(
                "a pass failed and comes again", deployment="/".join(key), after=wait, error=str(error)
            )
        except Exception:
            # A defect that one object triggers must not stop the others: it is logged whole, counted, and tried again.
            outcome = "error"
            wait = queue.add_rate_limited(key)
            log.exception("a pass met a defect and comes again", deployment="/".join(key), after=wait)
        else:
            queue.forget(key)
            if result.after == 0.0:
                queue.add(key)
            elif result.after is not None:
                queue.add_after(key, result.after)
        finally:
            queue.done(key)
        metrics.reconciled(outcome=outcome, seconds=clock.monotonic() - began)
