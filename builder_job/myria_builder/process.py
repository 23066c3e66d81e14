"""One builder process, and the further ones it starts for more cores."""

from __future__ import annotations

import asyncio
import gc
import logging
import multiprocessing
from multiprocessing.context import SpawnProcess
from typing import Final

import uvloop

from myria.builds import Outcome
from myria.builds.run import run_build
from myria.db.options import build_options
from myria.errors import MyriaError
from myria.settings import Settings
from myria_builder.reporting import reported

logger = logging.getLogger(__name__)

_END_S: Final = 5.0
"""Seconds that an extra process has to end before it is killed."""


async def build(settings: Settings, dsn: str, tenant: str, build_id: str, *, processes: int = 1) -> Outcome:
    """Work on a build with `processes` processes until it has ended; return its outcome.

    In a pod, this also reports the build on the Kubernetes resource that the environment names. All processes do the
    same work, so one that dies is not replaced: the others take over its task. Cancelling ends all of them.

    Raises:
        MyriaError: this process cannot go on; the build waits for another one.
    """
    _collect_cycles_seldom()
    extra_processes = [_spawn(settings, dsn, tenant, build_id) for _ in range(processes - 1)]
    try:
        async with reported(dsn, build_options(settings, size=1), tenant, build_id):
            return await run_build(settings, dsn, tenant, build_id)
    finally:
        await asyncio.shield(asyncio.to_thread(_end, extra_processes))


def _spawn(settings: Settings, dsn: str, tenant: str, build_id: str) -> SpawnProcess:
    """Start an extra process that works on a build."""
    process = multiprocessing.get_context("spawn").Process(
        target=_run_in_process, args=(settings, dsn, tenant, build_id), name=f"builder of {build_id}", daemon=True
    )
    process.start()
    return process


def _run_in_process(settings: Settings, dsn: str, tenant: str, build_id: str) -> None:
    _collect_cycles_seldom()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run_build(settings, dsn, tenant, build_id))
    except MyriaError as error:
        logger.warning(
            "a further builder gave up: %s", error.message, extra={"action": "builder_gave_up", "build_id": build_id}
        )


def _collect_cycles_seldom() -> None:
    """Look for reference cycles after a million new objects, not 700: a scope of some thousand events makes none."""
    gc.freeze()
    gc.set_threshold(1_000_000)


def _end(processes: list[SpawnProcess]) -> None:
    """End processes that have nothing left to do, without waiting until they have freed their memory."""
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(_END_S)
        if process.is_alive():
            process.kill()
            process.join()
