"""Builds in the test's own process: the same program that the Job runs, without the Job."""

from __future__ import annotations

from typing import Any

import asyncpg

from myria.builds.model import Outcome
from myria.builds.run import run_build
from myria.log.ids import new_id
from myria.settings import Settings


async def build_now(
    dsn: str, *, tenant: str = "default", full: bool = False, hold: bool = False, settings: Settings | None = None
) -> tuple[str, Outcome]:
    """Queue a build and work on it until it ends; return its id and outcome."""
    build_id = new_id("bld")
    connection: asyncpg.Connection[Any] = await asyncpg.connect(dsn)
    try:
        async with connection.transaction():
            await connection.execute("SELECT set_config('myria.tenant', $1, true)", tenant)
            await connection.execute(
                "INSERT INTO myria.builds (tenant_id, build_id, trigger, is_full, hold) "
                "VALUES ($1, $2, 'manual', $3, $4)",
                tenant,
                build_id,
                full,
                hold,
            )
    finally:
        await connection.close()
    return build_id, await run_build(settings or Settings(), dsn, tenant, build_id)
