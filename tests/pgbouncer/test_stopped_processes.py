"""The bounds of transactions hold through PgBouncer too, where no session may keep them."""

from __future__ import annotations

from contextlib import AsyncExitStack

import asyncpg

from myria.builds import Outcome
from myria.builds.queue import take_up
from myria.builds.run import run_build
from myria.builds.snapshots import Registry
from myria.db import schema
from myria.db.database import Database as Pool
from myria.db.database import PoolOptions
from tests.pgbouncer.bouncer import Bouncer
from tests.support import builds
from tests.support.events import TENANT, append, conversation
from tests.support.postgres import Database
from tests.support.stopped import APPENDING, holders, stopped_once_waiting, uncommitted_event


async def test_a_build_goes_on_though_a_server_behind_pgbouncer_is_stopped(
    bouncer: Bouncer, empty_database: Database
) -> None:
    """PostgreSQL ends the append of a stopped process, and PgBouncer's connection with it: the build ends well."""
    await schema.migrate(empty_database.dsn)
    (first, *_) = await append(empty_database.dsn, conversation(10))
    dsn = bouncer.in_front_of(empty_database.tcp.owner)
    configured = builds.settings(postgres={"pgbouncer": True})
    holder, watcher = [await asyncpg.connect(empty_database.superuser_dsn) for _ in range(2)]
    try:
        async with AsyncExitStack() as stack:
            async with uncommitted_event(holder, first.event_id):
                await stack.enter_async_context(
                    stopped_once_waiting(APPENDING, dsn, holder, watcher, {"MYRIA_POSTGRES_PGBOUNCER": "true"})
                )
                assert await holders(watcher, "append")

            async with Pool(dsn, PoolOptions(size=1, pgbouncer=True)) as pool:
                await Registry(pool, configured).request_build(TENANT)
                build = await take_up(pool, TENANT)
            assert build is not None
            assert await run_build(configured, dsn, TENANT, build["build_id"]) is Outcome.SUCCEEDED
            assert await holders(watcher, "append") == []
    finally:
        await holder.close()
        await watcher.close()
