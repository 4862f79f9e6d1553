"""The composition root of a process: its edges are made here, started under one task group, and stopped in order.

Of several processes one holds the Lease and works; the others keep their caches warm. Whoever loses it ends.

A loop that ends by an exception takes the process with it: a controller that is half alive is worse than one that the
kubelet restarts.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator
from random import Random
from typing import Any, Final
from uuid import uuid4

import structlog

from controller.assembly import Controller
from controller.cluster.credentials import load_credentials
from controller.cluster.http_client import HttpClient, user_agent
from controller.cluster.leader import UNELECTED, Elector, LeaseLostError
from controller.cluster.server_time import ServerTime, SystemClock
from controller.member_reader.reader import MemberReaders
from controller.routers.http import PodFetch
from controller.settings import Settings
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
    async with (
        HttpClient(credentials, server_time=server_time, observe=metrics.requested) as client,
        # Renewals have connections of their own: they must not wait behind other calls.
        HttpClient(credentials, server_time=server_time, observe=metrics.requested) as lease_client,
        PodFetch() as fetch,
    ):
        # One answer gives the server's time before anything is stamped, and says at once what is wrong.
        version = (await client.request("GET", "/version")).body
        log.info("connected", kubernetes=version.get("gitVersion"), controller=user_agent())
        elector = None
        if credentials.in_cluster if settings.leader_elect is None else settings.leader_elect:
            elector = Elector(
                client=lease_client,
                clock=clock,
                random=random,
                namespace=settings.lease_namespace or credentials.namespace,
                identity=f"{socket.gethostname()}_{uuid4()}",
            )
        controller = Controller(
            client=client,
            fetch=fetch,
            readers=MemberReaders(client=client, clock=clock),
            clock=clock,
            random=random,
            metrics=metrics,
            instance=socket.gethostname(),
            namespace=settings.namespace,
            leadership=elector or UNELECTED,
        )
        app = telemetry_app(
            live={"loop": lambda: None},
            ready={
                "caches": lambda: None if controller.caches.synced else "the first lists are not complete yet"
            },
            registry=metrics.registry,
        )
        async with serve_telemetry(app, bind=settings.bind) as address:
            log.info("serving /healthz, /readyz, /metrics", host=address.host or "*", port=address.port)
            await _work(controller, elector, workers=settings.workers, log=log)


async def _work(controller: Controller, elector: Elector | None, *, workers: int, log: Any) -> None:
    """Run every loop until a signal. The Lease is given up when each of them has ended, and not before."""

    async def lead() -> None:
        if elector is not None:
            await elector.acquire()
            group.create_task(elector.keep(), name="lease")

    lost: LeaseLostError | None = None
    try:
        async with asyncio.TaskGroup() as group:
            working = controller.start(group, workers=workers, lead=lead)
            group.create_task(_until_signalled(controller, working, elector, log), name="signals")
    except* _Stop:
        log.info("stopped")
    except* LeaseLostError as errors:
        lost = LeaseLostError(str(next(_leaves(errors))))
    finally:
        if elector is not None:
            await elector.release()
    if lost is not None:
        log.error("the Lease is lost, so this process ends; a new one starts clean", error=str(lost))
        raise lost


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions in a group, however deep."""
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _leaves(part)
    else:
        yield error


async def _until_signalled(
    controller: Controller, workers: asyncio.Task[None], elector: Elector | None, log: Any
) -> None:
    """Wait for a signal, let the passes under way end, then end the group."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
    if elector is not None and not elector.leads:
        raise _Stop  # nothing is under way in a process that stands by
    log.info("stopping: passes under way may end", seconds=STOP_SECONDS)
    controller.queue.shut_down()
    await asyncio.wait({workers}, timeout=STOP_SECONDS)
    raise _Stop
