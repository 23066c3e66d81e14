"""A process that uses the server of a data directory until it is told to end.

    hold.py DATA_DIR [exclusive] [supervise] [fast]

Prints `step NAME` as steps begin, then `ready POSTMASTER_PID DSN`, and `left` when it has ended in good order.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from myria.errors import MyriaError
from myria_embedded import EmbeddedPostgres


async def hold() -> None:
    """Use the server until SIGTERM or Ctrl-C."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    server = EmbeddedPostgres(
        sys.argv[1],
        exclusive="exclusive" in sys.argv,
        settings={"fsync": "off"} if "fast" in sys.argv else None,
        progress=lambda step: print("step", step, flush=True),
    )
    async with server:
        print("ready", server.pid, server.dsn, flush=True)
        await (server.supervise() if "supervise" in sys.argv else asyncio.Event().wait())


if __name__ == "__main__":
    try:
        asyncio.run(hold())
    except MyriaError as error:
        print(error.code, error.message)
        sys.exit(error.exit_status)
    except (asyncio.CancelledError, KeyboardInterrupt):
        print("left", flush=True)
