"""Appends have connections of their own: what questions do with theirs is nothing to them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

from myria.memory import Memory
from myria.settings import PostgresSettings, Settings
from tests.support.events import TENANT, event
from tests.support.patience import until
from tests.support.postgres import Database


async def test_questions_cannot_make_appends_wait(database: Database) -> None:
    """While questions use, and wait for, every connection they may have, appends and readiness are answered."""
    settings = replace(Settings(), postgres=PostgresSettings(pool_size=2, append_pool_size=1))
    async with Memory(database.server_dsn, settings) as memory, AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(memory.database.read(TENANT))
        waiting = asyncio.create_task(memory.registry.active_snapshot(TENANT))
        stack.callback(waiting.cancel)

        (result,) = await memory.log.append_events(TENANT, [event(1, "goes through")])
        await memory.ready()
        await until(lambda: memory.database.figures()["waits"], "the wait of the question")

        assert result.event_seq > 0
        assert not waiting.done()
        assert (memory.database.in_use, memory.appending.figures()["limit"]) == (2, 1)
