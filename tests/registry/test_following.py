"""What follows the log shows events as they are committed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from myria.builds import browse
from myria.builds.browse import EventFilter, follow_events
from myria.db.database import Connection, TransactionBounds
from myria.db.database import Database as Pool
from tests.support.events import TENANT, append, conversation
from tests.support.postgres import Database


class CountingPool(Pool):
    """Counts the transactions that read."""

    reads = 0

    @asynccontextmanager
    async def read(self, tenant: str, bounds: TransactionBounds | None = None) -> AsyncIterator[Connection]:
        """Count, and read."""
        self.reads += 1
        async with super().read(tenant, bounds) as connection:
            yield connection


async def test_a_follower_shows_each_page_before_it_reads_the_next(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many events come at once, they are shown in the log's order, and only one page waits in memory."""
    monkeypatch.setattr(browse, "PAGE", 2)
    appended = await append(database.server_dsn, conversation(5))
    pool = CountingPool(database.operator_dsn)
    shown, reads = [], []
    async with pool:
        async for row in follow_events(pool, TENANT, EventFilter(), after=0):
            shown.append(row["event_seq"])
            reads.append(pool.reads)
            if len(shown) == len(appended):
                break
    assert shown == sorted(result.event_seq for result in appended)
    assert reads == [1, 1, 2, 2, 3]
