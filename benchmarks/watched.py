"""A serving process that watches its own event loop: how long it was silent, in time and in CPU of its thread.

Written to the file named on the command line when it is told to end (SIGTERM).
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import uvloop

from myria.memory import Memory
from myria.settings import Settings
from myria_server.serving import serve_http

TICK_S = 0.002


class Watch:
    """Ticks every 2 ms and keeps the longest silences between two ticks."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []

    async def run(self) -> None:
        """Tick until cancelled."""
        at, cpu = time.perf_counter(), time.thread_time()
        while True:
            await asyncio.sleep(TICK_S)
            now, spent = time.perf_counter(), time.thread_time()
            self.wall.append(now - at)
            self.cpu.append(spent - cpu)
            at, cpu = now, spent

    def figures(self) -> dict[str, float]:
        """Return the silences in milliseconds."""
        wall, cpu = sorted(self.wall), sorted(self.cpu)
        return {
            "ticks": len(wall),
            "silent_ms": round(wall[-1] * 1e3, 1),
            "silent_p999_ms": round(wall[int(len(wall) * 0.999)] * 1e3, 1),
            "over_50_ms": sum(silence > 0.05 for silence in wall),
            "silent_cpu_ms": round(cpu[-1] * 1e3, 1),
            "cpu_over_50_ms": sum(silence > 0.05 for silence in cpu),
        }


async def main(port: int) -> Watch:
    """Serve until SIGTERM; return what was seen."""
    settings = Settings.load()
    settings = replace(settings, mcp=replace(settings.mcp, port=port))
    assert settings.postgres.dsn is not None
    stop = asyncio.Event()
    watch = Watch()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    ready = asyncio.Event()
    async with Memory(settings.postgres.dsn, settings) as memory:
        serving = asyncio.create_task(serve_http(memory, settings, stop=stop, ready=ready))
        await ready.wait()
        watching = asyncio.create_task(watch.run())
        await stop.wait()
        watching.cancel()
        await serving
    return watch


if __name__ == "__main__":
    seen = uvloop.run(main(int(sys.argv[1])))
    Path(sys.argv[2]).write_text(json.dumps(seen.figures()), encoding="utf-8")
