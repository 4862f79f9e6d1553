"""Run the engine until it is told to end, and then end the way the engine it stands for does."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import sys

from .engine import Engine
from .http import MAX_HEAD, Connections
from .log import Log, logger
from .settings import Settings, parse

EXIT_SECONDS = 2.0
"""From the abort of everything to the end of the process: what a real vLLM took on CPU."""
SERVE_POLL_SECONDS = 0.2


def main(flavour: str) -> None:
    """The engine under the command line of `vllm` or `sglang`; ends the process."""
    try:
        settings = parse(flavour, sys.argv[1:], os.environ)
        context = tls_context(settings)
    except (ValueError, OSError) as error:
        sys.exit(f"{flavour}: {error}")
    log = logger(settings.name)
    sys.exit(asyncio.run(run(settings, log=log, context=context)))


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """TLS when a certificate is named, plain HTTP otherwise or when told to refuse handshakes."""
    if not settings.certificate or settings.faults.tls == "refuse":
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(settings.certificate, settings.key)
    return context


async def run(settings: Settings, *, log: Log, context: ssl.SSLContext | None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        # First of all: the first process of a container ignores signals that it has no handler for.
        loop.add_signal_handler(number, told.set)
    log("start", argv=sys.argv, flavour=settings.flavour, pid=os.getpid())
    if settings.faults.exit_code is not None:
        log("exit", code=settings.faults.exit_code, why="told to")
        return settings.faults.exit_code
    try:
        await asyncio.wait_for(told.wait(), settings.faults.start_seconds)
    except TimeoutError:
        pass
    else:
        log("sigterm", in_flight=0)
        log("exit", code=0, why="told to end before it listened")
        return 0
    # Exits at once and without a goodbye, like an engine that crashed.
    engine = Engine(settings, log=log, exit_now=os._exit)
    connections = Connections(engine.handle, name=settings.name)
    server = await asyncio.start_server(
        connections.serve,
        settings.host,
        settings.port,
        ssl=context,
        limit=MAX_HEAD,
        backlog=512,
    )
    host, port = server.sockets[0].getsockname()[:2]
    log("ready", host=host, port=port, tls=context is not None)
    await told.wait()
    log("sigterm", in_flight=engine.work.in_flight)
    if settings.on_sigterm == "abort":
        server.close()
        connections.reset_all()
        await asyncio.sleep(EXIT_SECONDS)
    else:
        while engine.work.in_flight:
            await asyncio.sleep(SERVE_POLL_SECONDS)
        server.close()
        await asyncio.sleep(EXIT_SECONDS)
    log("exit", code=0, why="told to end", in_flight=engine.work.in_flight)
    return 0
