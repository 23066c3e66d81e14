"""Maintain sessions of turns: withdraw expired facts, session by session (memory-tools).

A run takes the session's lock, so that no two processes maintain the session at once, and while it holds off the
session's turns, this process stores none. It looks at a bounded number of the session's facts, the longest due first.
After a run that is killed anywhere, the next one goes on; a run with nothing due changes nothing.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from myria.db.database import Database
from myria.db.locks import lock_key
from myria.db.queries import sql
from myria.errors import TurnBusy
from myria.notes.consolidating import Consolidation
from myria.notes.turns.model import Session, visible_scopes
from myria.notes.turns.storing import TurnStore

MOST_SESSIONS = 200
"""Sessions of a tenant that one scheduled run maintains; further due ones wait for the next run."""

MOST_ROUNDS = 10
"""Times that one run takes a session's lock, each time for as many facts as one run of consolidation handles."""

_POLL_S = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class DueSession:
    """A session with due facts: its owner, its context, and the scopes of these facts."""

    owner: bytes
    context_id: str
    scopes: tuple[int, ...]


class TurnMaintenance:
    """Maintains sessions from one process.

    Args:
        database: where the state of sessions is looked up, and their locks are taken.
        consolidation: what withdraws the facts that have expired.
        lock_timeout_ms: how long it waits for the lock of a session.
    """

    def __init__(self, database: Database, consolidation: Consolidation, *, lock_timeout_ms: int) -> None:
        self._database = database
        self._consolidation = consolidation
        self._lock_timeout_s = lock_timeout_ms / 1000
        # A run holds one connection for the lock beside those that it works with; one run at a time leaves the pool
        # to others.
        self._one_at_a_time = asyncio.Lock()

    async def run(self, tenant: str, session: Session, turns: TurnStore, *, now: int | None = None) -> int:
        """Maintain a session that a caller names; return how many of its facts were looked at.

        Args:
            turns: stores the turns of this process, and holds those of this session off meanwhile.
            now: in microseconds since 1970 UTC; left out, the database's clock.

        Raises:
            TurnBusy: another run maintains the session, or too many of its turns wait; retry.
        """
        async with self._database.read(tenant) as connection:
            scopes = await visible_scopes(connection, tenant, session)
        if not scopes:
            return 0
        due = DueSession(owner=session.owner, context_id=session.context_id, scopes=tuple(scopes))
        async with turns.alone(tenant, session):
            return await self.maintain(tenant, due, now=now)

    async def maintain(self, tenant: str, session: DueSession, *, now: int | None = None) -> int:
        """Withdraw the expired facts of a session; return how many of its facts were looked at.

        Raises:
            TurnBusy: another run maintains the session; retry.
        """
        looked_at = 0
        for _ in range(MOST_ROUNDS):
            async with self._locked(tenant, session):
                report = await self._consolidation.run(
                    tenant, scopes=session.scopes, context_id=session.context_id, now=now
                )
            looked_at += report.looked_at
            if not report.more:
                break
        return looked_at

    async def due(self, tenant: str) -> Sequence[DueSession]:
        """Return the sessions of a tenant with due facts, the longest due first, at most `MOST_SESSIONS`."""
        async with self._database.read(tenant) as connection:
            rows = await connection.fetch(sql("turns.sessions_due"), tenant, MOST_SESSIONS)
        return [
            DueSession(owner=row["owner"], context_id=row["context_id"], scopes=tuple(row["scope_ids"])) for row in rows
        ]

    @asynccontextmanager
    async def _locked(self, tenant: str, session: DueSession) -> AsyncIterator[None]:
        """Hold a session's lock, which the database releases with the transaction, even if this process is killed.

        Raises:
            TurnBusy: another run held it until the timeout.
        """
        deadline = time.monotonic() + self._lock_timeout_s
        key = lock_key("maintenance", tenant, session.owner, session.context_id)
        try:
            async with asyncio.timeout(self._lock_timeout_s):
                await self._one_at_a_time.acquire()
        except TimeoutError as error:
            raise _busy() from error
        try:
            while True:
                async with self._database.write(tenant) as connection:
                    if await connection.fetchval(sql("turns.try_lock"), key):
                        yield
                        return
                pause = _POLL_S * random.uniform(0.5, 1.5)  # noqa: S311 - jitter
                if time.monotonic() + pause >= deadline:
                    raise _busy()
                await asyncio.sleep(pause)
        finally:
            self._one_at_a_time.release()


def _busy() -> TurnBusy:
    return TurnBusy("this session is being maintained by another request; retry")
