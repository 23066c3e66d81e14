"""`python -m myria_builder --tenant TENANT --build BUILD_ID`: the builder alone, configured as every other part.

The connection string comes from `postgres.dsn` (MYRIA_POSTGRES_DSN). The exit status is 0 when the build ended
published, held or with nothing to do; 4 superseded or aborted; 7 failed; 5 the database was away; others as in
docs/errors.md.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys

import uvloop

from myria.program import QuickEnd, importing

_END = QuickEnd()
with importing():
    from myria.errors import ConfigurationError, MyriaError
    from myria.settings import Settings
    from myria_builder.process import build

_STOPPED = 143


def main() -> int:
    """Run one builder process; return its exit status."""
    parser = argparse.ArgumentParser(prog="myria_builder", description="Work on one build until it has ended.")
    parser.add_argument("--tenant", default="default")
    parser.add_argument("--build", required=True, help="the build's id")
    parser.add_argument(
        "--processes", "--workers", type=int, help="processes to work with (default: builder.processes)"
    )
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        settings = Settings.load()
        if settings.postgres.dsn is None:
            raise ConfigurationError("postgres.dsn (MYRIA_POSTGRES_DSN) is not set", field="postgres.dsn")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_run(settings, settings.postgres.dsn, options))
    except MyriaError as error:
        print(f"{error.code}: {error.message}", file=sys.stderr)
        return error.exit_status
    except asyncio.CancelledError:
        return _STOPPED


async def _run(settings: Settings, dsn: str, options: argparse.Namespace) -> int:
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    processes = options.processes or settings.builder.processes
    outcome = await build(settings, dsn, options.tenant, options.build, processes=processes)
    return outcome.exit_status


if __name__ == "__main__":
    _END.status = main()
    raise SystemExit(_END.status)
