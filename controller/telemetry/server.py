"""The small HTTP server that the kubelet and Prometheus ask: /healthz, /readyz, /metrics."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from controller.settings import Address

Check = Callable[[], str | None]
"""Returns None when all is well, else one sentence that says what is missing."""


def telemetry_app(
    *, live: Mapping[str, Check], ready: Mapping[str, Check], registry: CollectorRegistry
) -> web.Application:
    """Each check has a name; the answer lists them all, and is 503 when one has something to say."""

    async def healthz(request: web.Request) -> web.Response:
        return _report(live)

    async def readyz(request: web.Request) -> web.Response:
        return _report(ready)

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics)
    return app


@asynccontextmanager
async def serve_telemetry(app: web.Application, *, bind: Address) -> AsyncGenerator[Address, None]:
    """Serve `app` while the context lasts; yields the address it really listens on. Raises OSError if it cannot."""
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        await web.TCPSite(runner, bind.host or None, bind.port).start()
        host, port = runner.addresses[0][:2]
        yield Address(host, port)
    finally:
        await runner.cleanup()


def _report(checks: Mapping[str, Check]) -> web.Response:
    found = {name: check() for name, check in checks.items()}
    lines = [f"{name}: {sentence or 'ok'}" for name, sentence in found.items()]
    failed = any(sentence is not None for sentence in found.values())
    return web.Response(status=503 if failed else 200, text="\n".join([*lines, ""]))
