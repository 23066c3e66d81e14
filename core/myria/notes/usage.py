"""Count how often notes are used: in memory, written later beside the requests, and no part of the log.

Uses may be lost: a process that is killed loses those of its last seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Sequence

from myria.db.clock import to_datetime
from myria.db.database import Database
from myria.db.queries import sql
from myria.errors import MyriaError

logger = logging.getLogger(__name__)

WRITTEN_EVERY_S = 5.0
"""Seconds for which uses are gathered before they are written."""

MAX_WAITING = 20_000
"""Notes whose uses wait to be written at most; uses of further notes are not counted until then."""


class NoteUsage:
    """Counts the uses of notes in one process.

    Args:
        database: where the counts are kept.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: dict[str, dict[str, tuple[int, int]]] = {}
        self._count = 0
        self._writer: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def count(self, tenant: str, note_ids: Iterable[str], now: int) -> None:
        """Count one use of each note, at a moment in microseconds since 1970 UTC. It returns at once."""
        waiting = self._waiting.setdefault(tenant, {})
        for note_id in note_ids:
            uses, used_at = waiting.get(note_id, (0, 0))
            if uses == 0:
                if self._count >= MAX_WAITING:
                    continue
                self._count += 1
            waiting[note_id] = (uses + 1, max(used_at, now))
        if self._count and self._writer is None:
            self._writer = asyncio.create_task(self._write_later())

    async def write(self) -> None:
        """Write the waiting counts; counts that cannot be written are dropped, and that is logged."""
        waiting, self._waiting, self._count = self._waiting, {}, 0
        for tenant, uses in waiting.items():
            note_ids = sorted(uses)
            counts = [uses[name][0] for name in note_ids]
            moments = [to_datetime(uses[name][1]) for name in note_ids]
            try:
                async with self._database.write(tenant) as connection:
                    await connection.execute(sql("notes.count_uses"), tenant, note_ids, counts, moments)
            except MyriaError as error:
                logger.info("uses of %d notes not counted: %s", len(note_ids), error, extra={"action": "uses_dropped"})

    async def close(self) -> None:
        """Write the waiting counts, and stop."""
        self._closing.set()
        if self._writer is not None:
            await self._writer
        await self.write()

    async def _write_later(self) -> None:
        while self._count:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), WRITTEN_EVERY_S)
            await self.write()
        self._writer = None


async def keep_from(database: Database, tenant: str, note_ids: Sequence[str], now: int) -> None:
    """Let the lifetimes of unused notes begin at a moment, in microseconds since 1970 UTC, without counting a use."""
    names = sorted(set(note_ids))
    async with database.write(tenant) as connection:
        await connection.execute(
            sql("notes.count_uses"), tenant, names, [0] * len(names), [to_datetime(now)] * len(names)
        )
