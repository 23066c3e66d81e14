"""One server process without and with keys: two applications over one memory, each on a port of its own.

So `benchmarks/auth.py` compares requests within one process: two processes of one program differ by more than a key
costs.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from dataclasses import replace

import uvloop

from myria.memory import Memory
from myria.settings import AuthSettings, Settings
from myria_server.app import build_app
from myria_server.http.listening import reserve_port
from myria_server.serving import HttpServer


async def _serve(dsn: str, port: int, keyed_port: int) -> None:
    plain = Settings()
    keyed = replace(plain, auth=AuthSettings(mode="keys"))
    async with Memory(dsn, plain) as memory, asyncio.TaskGroup() as group:
        for settings, at in ((plain, port), (keyed, keyed_port)):
            app = build_app(memory, settings)
            server = HttpServer(app, reserve_port("127.0.0.1", at), drain_seconds=1.0)
            group.create_task(server.run())
        gc.collect()
        gc.freeze()
        await asyncio.to_thread(sys.stdin.read)
        os._exit(0)


def main() -> None:
    """Serve on the two ports that are named until standard input ends."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(os.environ["BOTH_DSN"], int(sys.argv[1]), int(sys.argv[2])))


if __name__ == "__main__":
    main()
