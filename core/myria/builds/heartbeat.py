"""Renews leases from a thread of its own, however long a plan keeps the event loop busy.

It also notices when the work is for nothing: the task went to another worker, the build ended, the pointer moved.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto
from types import TracebackType

from myria import errors
from myria.db.database import Database, PoolOptions
from myria.db.queries import sql

logger = logging.getLogger(__name__)

_RENEWALS_PER_LEASE = 3


class Verdict(Enum):
    """Whether the build is still worth working on."""

    GO_ON = auto()
    ENDED = auto()
    SUPERSEDED = auto()


Renewal = Callable[[Database], Awaitable[bool]]
"""Renews what a worker has, by a connection of its own; tells whether it still has it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Watched:
    renew: Renewal
    work: asyncio.Task[None]
    loop: asyncio.AbstractEventLoop


class Heartbeat:
    """Renews the lease of a build and of the task at work, a third of a lease apart; use as a context manager."""

    def __init__(self, dsn: str, options: PoolOptions, tenant: str, build_id: str, lease_s: float) -> None:
        self._dsn = dsn
        self._options = options
        self._tenant = tenant
        self._build_id = build_id
        self._lease_s = lease_s
        self._watched: _Watched | None = None
        self._dropped: asyncio.Task[None] | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self.verdict = Verdict.GO_ON

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(5.0)

    def watch(self, renew: Renewal, work: asyncio.Task[None]) -> None:
        """Keep a lease while `work` runs, and cancel it should the lease be lost."""
        self._watched = _Watched(renew=renew, work=work, loop=asyncio.get_running_loop())

    def forget(self, work: asyncio.Task[None]) -> None:
        """Stop renewing a task's lease."""
        watched = self._watched
        if watched is not None and watched.work is work:
            self._watched = None

    def dropped(self, work: asyncio.Task[None]) -> bool:
        """Tell whether it was this heartbeat that cancelled `work`."""
        return self._dropped is work

    def _run(self) -> None:
        asyncio.run(self._beat())

    async def _beat(self) -> None:
        async with Database(self._dsn, self._options) as database:
            while not self._stop.is_set():
                try:
                    await self._renew(database)
                except errors.MyriaError as error:
                    logger.warning(
                        "a lease was not renewed: %s",
                        error.message,
                        extra={"action": "lease_not_renewed", "build_id": self._build_id},
                    )
                await asyncio.to_thread(self._stop.wait, self._lease_s / _RENEWALS_PER_LEASE)

    async def _renew(self, database: Database) -> None:
        async with database.write(self._tenant) as connection:
            row = await connection.fetchrow(sql("builds.renew_lease"), self._tenant, self._build_id, self._lease_s)
        if row is None:
            self.verdict = Verdict.ENDED
        elif row["status"] == "running" and row["parent_snapshot_id"] != row["active_snapshot_id"]:
            self.verdict = Verdict.SUPERSEDED
        watched = self._watched
        if watched is None:
            return
        if self.verdict is Verdict.GO_ON and await watched.renew(database):
            return
        if self._watched is watched:
            self._dropped = watched.work
            watched.loop.call_soon_threadsafe(watched.work.cancel)
