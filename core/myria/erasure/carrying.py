"""Carrying erasures on: whatever has begun and nobody works on is gone on with, by the control plane.

An erasure that a tool asked for is begun by a serving process, which may not change the log; one of `myria erase` that
was killed waits in the same way. The database says what waits, so this may stop anywhere and run twice at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Thread

from myria import errors
from myria.builds.snapshots import Registry
from myria.db.database import ALL_TENANTS, Database
from myria.db.queries import sql
from myria.erasure.commands import Erasures
from myria.log.event_log import EventLog
from myria.settings import ErasureSettings

logger = logging.getLogger(__name__)

LOOK_S = 1.0
"""Seconds between two looks for erasures that wait."""

AT_ONCE = 2
"""Tenants whose erasures are worked on at once."""

ACTOR = "control"

THREAD = "erasures"
"""Name of the thread in which a carrier runs."""

_CONNECTIONS = 2 * AT_ONCE + 2
"""One to work with and one to renew the lease with for each, and two to spare."""

_AGAIN_S = (5.0, 300.0)
"""Least and most seconds until an erasure that failed is tried again."""


async def carry_on_apart(database: Database, make: Callable[[Database], ErasureCarrier]) -> None:
    """Let a carrier run until cancelled, in a thread with an event loop and connections of its own.

    Looking through texts takes seconds; triggers and maintenance, whose loop this is called on, go on meanwhile.

    Args:
        database: to which it connects anew.
        make: makes the carrier on such connections.
    """
    outer, inner = asyncio.get_running_loop(), asyncio.new_event_loop()
    ended = asyncio.Event()
    working: list[asyncio.Task[None]] = []
    stopped: list[bool] = []

    async def work() -> None:
        if not stopped:
            working.append(asyncio.create_task(carry_on()))
            await asyncio.wait(working)
        for task in working:
            if not task.cancelled() and (error := task.exception()) is not None:
                logger.error("erasures are not carried on", exc_info=error, extra={"action": "erasures_failed"})

    async def carry_on() -> None:
        async with database.another(_CONNECTIONS) as connected:
            await make(connected).run()

    def in_thread() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: inner) as runner:
                runner.run(work())
        finally:
            _tell(outer, ended.set)

    def stop() -> None:
        stopped.append(True)
        # Once: a second time would interrupt the giving back of leases.
        for task in working:
            task.cancel()

    thread = Thread(target=in_thread, name=THREAD, daemon=True)
    thread.start()
    try:
        await ended.wait()
    finally:
        # Told at once and without waiting: whoever is cancelled again meanwhile leaves no thread behind.
        _tell(inner, stop)
        await ended.wait()
        thread.join()


def _tell(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    """Have another thread's loop do something, unless it is closed."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(what)


class ErasureCarrier:
    """Goes on with the erasures of every tenant of one database.

    Args:
        database: connects as the control plane.
        registry: of the same database.
        log: where withdrawals are appended.
        settings: whether to do so at all, and how long a lease is.
        unproved: whether also to carry out what serving wrote down without showing the key of an officer.
    """

    def __init__(
        self, database: Database, registry: Registry, log: EventLog, settings: ErasureSettings, *, unproved: bool
    ) -> None:
        self._database = database
        self._registry = registry
        self._log = log
        self._settings = settings
        self._unproved = unproved
        self._working: dict[str, asyncio.Task[None]] = {}
        self._failed: dict[str, tuple[int, float]] = {}

    async def run(self) -> None:
        """Look for erasures until cancelled. An unreachable database is waited for."""
        try:
            while self._settings.carry_on:
                try:
                    await self.look()
                except errors.MyriaError as error:
                    logger.warning("erasures wait: %s", error.message, extra={"action": "erasures_wait"})
                except Exception:
                    logger.exception("a look for erasures failed", extra={"action": "erasures_failed"})
                await asyncio.sleep(LOOK_S)
        finally:
            working = list(self._working.values())
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)

    async def look(self) -> None:
        """Begin work on what waits, as far as there is room for it; forget keys of receipts that were shown."""
        async with self._database.write(ALL_TENANTS) as connection:
            await connection.execute(sql("erasures.forget_shown_keys"))
            rows = await connection.fetch(sql("erasures.waiting"), self._unproved)
        self._working = {tenant: task for tenant, task in self._working.items() if not task.done()}
        now = time.monotonic()
        for row in rows:
            tenant, erasure_id = row["tenant_id"], row["erasure_id"]
            if len(self._working) >= AT_ONCE:
                return
            if tenant in self._working or self._failed.get(erasure_id, (0, 0.0))[1] > now:
                continue
            self._working[tenant] = asyncio.create_task(self._carry_on(tenant, erasure_id))

    async def settle(self) -> None:
        """Return when what is being worked on is done, or has failed."""
        await asyncio.gather(*self._working.values(), return_exceptions=True)

    async def _carry_on(self, tenant: str, erasure_id: str) -> None:
        where = {"tenant": tenant, "erasure_id": erasure_id}
        erasures = Erasures(
            self._database, self._registry, self._log, tenant, actor=ACTOR, lease_s=self._settings.lease_s
        )
        try:
            await erasures.run(erasure_id)
        except errors.MyriaError as error:
            self._try_later(erasure_id)
            logger.warning("an erasure waits: %s", error.message, extra={"action": "erasure_waits", **where})
        except Exception:
            self._try_later(erasure_id)
            logger.exception("an erasure failed", extra={"action": "erasure_failed", **where})
        else:
            self._failed.pop(erasure_id, None)
            logger.info("an erasure is done", extra={"action": "erasure_done", **where})

    def _try_later(self, erasure_id: str) -> None:
        times = self._failed.get(erasure_id, (0, 0.0))[0]
        least, most = _AGAIN_S
        self._failed[erasure_id] = times + 1, time.monotonic() + min(least * 2 ** min(times, 10), most)
