"""A port of its own on which a process is scraped."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import ProcessCollector, start_http_server
from prometheus_client.core import Metric

from myria.errors import PortInUse
from myria_monitoring.exposition import registry_of

_SCRAPE_S: Final = 5.0


@contextmanager
def scraped(
    host: str, port: int, families: Callable[[], Awaitable[Iterable[Metric]]], *, process: bool
) -> Iterator[int]:
    """Answer scrapes on `port` (0: any free one) for the block; yield the port's number.

    `families` is called on the caller's event loop, so nothing needs a lock; a blocked loop fails the scrape within
    seconds. `process` adds what the operating system knows of this process.

    Raises:
        PortInUse: another program listens there.
    """
    loop = asyncio.get_running_loop()

    async def collect_on_loop() -> list[Metric]:
        return list(await families())

    def collect() -> Iterable[Metric]:
        return asyncio.run_coroutine_threadsafe(collect_on_loop(), loop).result(_SCRAPE_S)

    registry = registry_of(collect)
    if process:
        ProcessCollector(registry=registry)
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise PortInUse(f"port {port} on {host} is in use; set operator.metrics_port", host=host, port=port) from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join(1.0)
