"""The control plane resumes erasures that have begun and that no process works on.

A serving process begins the erasure that a tool asked for, but may not change the log; a killed `myria erase` also
leaves its erasure unfinished. The database says which wait, so this may stop anywhere, and two may run at once.
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

_RETRY_AFTER_S = (5.0, 300.0)
"""Least and most seconds until an erasure that failed is tried again."""


async def carry_on_apart(database: Database, make: Callable[[Database], ErasureCarrier]) -> None:
    """Run a carrier until cancelled, in a thread with an event loop and connections of its own.

    Searching texts blocks a loop for seconds; triggers and maintenance, which share the caller's loop, must not wait.

    Args:
        database: is connected to again, for the thread.
        make: makes the carrier on those connections.
    """
    caller_loop, thread_loop = asyncio.get_running_loop(), asyncio.new_event_loop()
    thread_ended = asyncio.Event()
    carrier_tasks: list[asyncio.Task[None]] = []
    stop_requests: list[bool] = []

    async def work() -> None:
        if not stop_requests:
            carrier_tasks.append(asyncio.create_task(carry_on()))
            await asyncio.wait(carrier_tasks)
        for task in carrier_tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                logger.error("erasures are not carried on", exc_info=error, extra={"action": "erasures_failed"})

    async def carry_on() -> None:
        async with database.another(_CONNECTIONS) as connected:
            await make(connected).run()

    def in_thread() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: thread_loop) as runner:
                runner.run(work())
        finally:
            _call_soon_in(caller_loop, thread_ended.set)

    def stop() -> None:
        stop_requests.append(True)
        # Called only once: a second cancellation would interrupt the release of leases.
        for task in carrier_tasks:
            task.cancel()

    thread = Thread(target=in_thread, name=THREAD, daemon=True)
    thread.start()
    try:
        await thread_ended.wait()
    finally:
        # Stop the thread before anything is awaited: if this task is cancelled again, no thread is left running.
        _call_soon_in(thread_loop, stop)
        await thread_ended.wait()
        thread.join()


def _call_soon_in(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    """Run a callback on another thread's event loop; do nothing if that loop is closed."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(callback)


class ErasureCarrier:
    """Goes on with the erasures of every tenant of one database.

    Args:
        database: connects as the control plane.
        registry: of the same database.
        log: where withdrawals are appended.
        settings: whether to do so at all, and how long a lease is.
        unproved: whether also to carry out erasures that serving began without the proof of an officer's key.
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
        # By erasure id: how often it failed, and when (monotonic clock) it may be tried again.
        self._retries: dict[str, tuple[int, float]] = {}

    async def run(self) -> None:
        """Look for erasures until cancelled; while the database is unreachable, keep trying."""
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
        """Begin work on waiting erasures, of at most `AT_ONCE` tenants; forget keys of receipts that were shown."""
        async with self._database.write(ALL_TENANTS) as connection:
            await connection.execute(sql("erasures.forget_shown_keys"))
            rows = await connection.fetch(sql("erasures.waiting"), self._unproved)
        self._working = {tenant: task for tenant, task in self._working.items() if not task.done()}
        now = time.monotonic()
        for row in rows:
            tenant, erasure_id = row["tenant_id"], row["erasure_id"]
            if len(self._working) >= AT_ONCE:
                return
            if tenant in self._working or self._retries.get(erasure_id, (0, 0.0))[1] > now:
                continue
            self._working[tenant] = asyncio.create_task(self._carry_on(tenant, erasure_id))

    async def settle(self) -> None:
        """Wait until each erasure that is being worked on is done, or has failed."""
        await asyncio.gather(*self._working.values(), return_exceptions=True)

    async def _carry_on(self, tenant: str, erasure_id: str) -> None:
        """Carry one erasure out; log the outcome, and schedule another attempt after a failure."""
        log_fields = {"tenant": tenant, "erasure_id": erasure_id}
        erasures = Erasures(
            self._database, self._registry, self._log, tenant, actor=ACTOR, lease_s=self._settings.lease_s
        )
        try:
            await erasures.run(erasure_id)
        except errors.MyriaError as error:
            self._try_later(erasure_id)
            logger.warning("an erasure waits: %s", error.message, extra={"action": "erasure_waits", **log_fields})
        except Exception:
            self._try_later(erasure_id)
            logger.exception("an erasure failed", extra={"action": "erasure_failed", **log_fields})
        else:
            self._retries.pop(erasure_id, None)
            logger.info("an erasure is done", extra={"action": "erasure_done", **log_fields})

    def _try_later(self, erasure_id: str) -> None:
        """Count a failure, and double the wait before the next attempt."""
        failures = self._retries.get(erasure_id, (0, 0.0))[0]
        shortest, longest = _RETRY_AFTER_S
        self._retries[erasure_id] = failures + 1, time.monotonic() + min(shortest * 2 ** min(failures, 10), longest)
