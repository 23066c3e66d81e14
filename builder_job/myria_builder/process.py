"""One builder process, and the further ones it starts for more cores."""

from __future__ import annotations

import asyncio
import gc
import logging
import multiprocessing
from multiprocessing.context import SpawnProcess

import uvloop

from myria.builds import Outcome
from myria.builds.run import run_build
from myria.db.options import build_options
from myria.errors import MyriaError
from myria.settings import Settings
from myria_builder.reporting import reported

logger = logging.getLogger(__name__)

_PATIENCE_S = 5.0
_YOUNG_OBJECTS = 1_000_000
"""Objects made before Python looks for cycles among them: what a scope of some thousand events makes has none."""


async def build(settings: Settings, dsn: str, tenant: str, build_id: str, *, processes: int = 1) -> Outcome:
    """Work on a build with `processes` processes until it has ended; return how (`Outcome.exit_status` for the shell).

    In a pod it also reports the build on the Kubernetes resource that the environment names. All processes do the
    same work, so one that dies is not replaced: the others take over its task. Cancelling ends them.

    Raises:
        MyriaError: this process cannot go on; the build waits for another one.
    """
    _look_for_cycles_seldom()
    others = [_spawn(settings, dsn, tenant, build_id) for _ in range(processes - 1)]
    options = build_options(settings, size=1)
    try:
        async with reported(dsn, options, tenant, build_id):
            return await run_build(settings, dsn, tenant, build_id)
    finally:
        await asyncio.shield(asyncio.to_thread(_end, others))


def _spawn(settings: Settings, dsn: str, tenant: str, build_id: str) -> SpawnProcess:
    process = multiprocessing.get_context("spawn").Process(
        target=_work, args=(settings, dsn, tenant, build_id), name=f"builder of {build_id}", daemon=True
    )
    process.start()
    return process


def _work(settings: Settings, dsn: str, tenant: str, build_id: str) -> None:
    _look_for_cycles_seldom()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run_build(settings, dsn, tenant, build_id))
    except MyriaError as error:
        logger.warning(
            "a further builder gave up: %s", error.message, extra={"action": "builder_gave_up", "build_id": build_id}
        )


def _look_for_cycles_seldom() -> None:
    """Leave what is imported out of the search for cycles, and search after many new objects, not 700: a tenth of
    a builder's time."""
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)


def _end(processes: list[SpawnProcess]) -> None:
    """End processes that have nothing left to do, without waiting for what they hold in memory."""
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(_PATIENCE_S)
        if process.is_alive():
            process.kill()
            process.join()
