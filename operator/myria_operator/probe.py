"""/healthz: whether the queue ticks, and nothing else. An outage of the database or the API server never fails it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from myria.errors import PortInUse

DEAD_S: Final = 60.0
"""Seconds without a tick of the queue after which Kubernetes should restart the process."""


@asynccontextmanager
async def liveness(port: int, idle_s: Callable[[], float], keys: Callable[[], int]) -> AsyncIterator[None]:
    """Answer GET /healthz for the block: 200, or 503 once the queue has not ticked for `DEAD_S`. Port 0 opens none.

    Raises:
        PortInUse: another program listens there.
    """

    async def healthz(_request: web.Request) -> web.Response:
        idle = idle_s()
        body = {"idle_s": round(idle, 1), "keys": keys()}
        return web.json_response(body, status=200 if idle < DEAD_S else 503)

    if not port:
        yield
        return
    application = web.Application()
    application.router.add_get("/healthz", healthz)
    runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, "0.0.0.0", port).start()  # noqa: S104 - the kubelet asks from the node
        except OSError as error:
            raise PortInUse(f"port {port} is in use; set operator.probe_port", port=port) from error
        yield
    finally:
        await runner.cleanup()
