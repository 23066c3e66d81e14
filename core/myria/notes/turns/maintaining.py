"""Maintenance of sessions of turns: facts that have expired are withdrawn, session by session (memory-tools).

A run takes a session's lock, so that no two processes maintain it at once and no turn of it is stored beside it by the
same process. It looks at a bounded number of facts of that one context, the longest due first. A run that is killed
anywhere is taken up by the next, and one that finds nothing due changes nothing: its effects are withdrawals.
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
"""Sessions of a tenant that one run by schedule looks at; what else is due comes with the next."""

MOST_ROUNDS = 10
"""Times that one run takes a session's lock anew, each for as many facts as its consolidation looks at."""

_POLL_S = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class DueSession:
    """A session that has facts that are due, by its owner, its context and the scopes in which they are."""

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
        # Each holds a connection beside those that it works with: one at a time leaves the pool to others.
        self._one = asyncio.Lock()

    async def run(self, tenant: str, session: Session, turns: TurnStore, *, now: int | None = None) -> int:
        """Maintain a session that somebody names; return how many facts were looked at.

        Args:
            turns: what stores the turns of this process.
            now: in microseconds since 1970 UTC; left out, the database's clock.

        Raises:
            TurnBusy: it is being maintained elsewhere, or too many turns of it wait; retry.
        """
        async with self._database.read(tenant) as connection:
            scopes = await visible_scopes(connection, tenant, session)
        if not scopes:
            return 0
        due = DueSession(owner=session.owner, context_id=session.context_id, scopes=tuple(scopes))
        async with turns.alone(tenant, session):
            return await self.maintain(tenant, due, now=now)

    async def maintain(self, tenant: str, session: DueSession, *, now: int | None = None) -> int:
        """Withdraw the facts of a session that have expired; return how many were looked at.

        Raises:
            TurnBusy: it is being maintained elsewhere; retry.
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
        """Return the sessions of a tenant that have facts that are due, those due longest first; at most so many."""
        async with self._database.read(tenant) as connection:
            rows = await connection.fetch(sql("turns.sessions_due"), tenant, MOST_SESSIONS)
        return [
            DueSession(owner=row["owner"], context_id=row["context_id"], scopes=tuple(row["scope_ids"])) for row in rows
        ]

    @asynccontextmanager
    async def _locked(self, tenant: str, session: DueSession) -> AsyncIterator[None]:
        """Hold the session's lock, which ends with its transaction, whatever becomes of this process."""
        deadline = time.monotonic() + self._lock_timeout_s
        key = lock_key("maintenance", tenant, session.owner, session.context_id)
        try:
            async with asyncio.timeout(self._lock_timeout_s):
                await self._one.acquire()
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
            self._one.release()


def _busy() -> TurnBusy:
    return TurnBusy("this session is being maintained by another request; retry")
