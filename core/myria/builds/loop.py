"""Finds tenants that are due for a build, queues builds, and keeps builders going.

Every cause of a build is a row in `rebuild_requests`, unique on the cause; a waiting row becomes the tenant's one
unfinished build; that build has a builder process until it ends. The loop keeps nothing that matters in memory: it may
stop at any point, start anew elsewhere, and run twice at once. It polls: a NOTIFY in each append would make PostgreSQL
commit appends one after the other.

What it does not guarantee: that a build starts within a second while the database is away, or when there are so many
tenants that one look at all of them takes longer.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import orjson

from myria import errors
from myria.builds.due import Due, Tail, TriggerState, due, rest_s
from myria.builds.finish import end_without_result
from myria.builds.model import Outcome
from myria.builds.queue import SCHEDULED, BuilderSlot, BuilderSlots, take_up
from myria.builds.snapshots import Registry
from myria.db.database import ALL_TENANTS, Database
from myria.db.queries import sql
from myria.settings import Settings
from myria.settings.schedule import last_due

logger = logging.getLogger(__name__)

Launch = Callable[[str, str], Awaitable[int]]
"""Runs a builder for (tenant, build_id); returns its exit status once it has ended, or raises why the builder died: an
`OperationalError` where no other one would do better. Cancelling it ends the builder."""

SWEEP_S = (5.0, 60.0)
"""Least and most seconds between two looks at every tenant, which find what the hints missed: as often as costs a
hundredth of the time."""

MAX_LAUNCHES = 12
"""Builders in a row that may die without any progress of their build before it fails."""

FULL_REBUILD = "full_rebuild"
"""What the schedule of full rebuilds is called in the database."""

_CLOCK_S = 10.0
"""Seconds between two looks at the clock: a schedule is exact to the minute."""

_SWEEP_SLICE = 40
"""Tenants of a sweep that are looked at in a row."""

_LOOKS_AT_ONCE = 4
"""Tenants that are looked at side by side: most of a look is waiting for an answer."""

_ENDED_WELL = frozenset(outcome.exit_status for outcome in Outcome if outcome is not Outcome.FAILED)
"""Exit statuses of builders after which a tenant's next build waits for nobody's sake."""

_RELAUNCH_S = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_LONGEST_OUTAGE_WAIT_S = 5.0


@dataclass(slots=True)
class _Launched:
    """A build's builders so far.

    The one at work or waiting for its slot; how many died since the last progress; when the last one was launched; for
    how many seconds all of them worked; why the last one died.
    """

    task: asyncio.Task[int] | None = None
    died: int = 0
    at: float = 0.0
    worked_s: float = 0.0
    progress: tuple[str, int] = ("", 0)
    reason: str = "it did not say why"


@dataclass(slots=True)
class _Quiet:
    """The last event of a tenant as this process first saw it, for when the database's clock steps back."""

    event_seq: int = 0
    seen_at: float = field(default_factory=time.monotonic)


class BuildLoop:
    """Triggers, queue and builders of every tenant of one database.

    Args:
        database: connects as a role that may name all tenants.
        settings: `builder` says when builds are due.
        launch: runs a builder.
        max_builders: builders at work at once, over all tenants; further builds wait for a slot (`BuilderSlots`).
    """

    def __init__(self, database: Database, settings: Settings, launch: Launch, *, max_builders: int = 4) -> None:
        self._slots = BuilderSlots(max_builders, settings.builder.turn_s)
        self._database = database
        self._settings = settings
        self._launch = launch
        self._registry = Registry(database, settings)
        self._cursor = 0
        self._clock_at = 0.0
        self._sweep_at = 0.0
        self._sweep_cost = 0.0
        self._backlog: dict[str, None] = {}
        self._paused: set[str] = set()
        self._look_at: dict[str, float] = {}
        self._quiet: dict[str, _Quiet] = {}
        self._builders: dict[tuple[str, str], _Launched] = {}
        self._served: dict[str, int] = {}
        self._turn = itertools.count(1)
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Look for work until cancelled; then end the builders. An unreachable database is waited for."""
        beside = list(map(asyncio.create_task, self._beside()))
        wait = self._settings.builder.poll_s
        try:
            while True:
                started = time.monotonic()
                in_trouble = True
                try:
                    await self.step()
                    took = time.monotonic() - started
                    # A sweep goes on at half speed; otherwise a long look is followed by twice as long a pause.
                    wait = took if self._backlog else max(self._settings.builder.poll_s, 2 * took)
                    in_trouble = False
                except errors.MyriaError as error:
                    wait = min(max(wait, 0.25) * 2, _LONGEST_OUTAGE_WAIT_S)
                    logger.warning("triggers wait: %s", error.message, extra={"action": "triggers_wait"})
                except Exception:
                    wait = _LONGEST_OUTAGE_WAIT_S
                    logger.exception("a look for due builds failed", extra={"action": "triggers_failed"})
                # In trouble no tenant's time shortens the wait: nobody can be looked at.
                await (asyncio.sleep(wait) if in_trouble else self._sleep(wait))
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await self.close()

    def _beside(self) -> Sequence[Coroutine[Any, Any, Any]]:
        """Return what is done beside looking for builds: nothing here."""
        return ()

    async def close(self) -> None:
        """End the builders this loop launched."""
        running = [
            builder.task for builder in self._builders.values() if builder.task is not None and not builder.task.done()
        ]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def step(self) -> None:
        """Look once at every tenant that may have something to do.

        Raises:
            DatabaseUnavailable: nothing could be looked at; call again later.
        """
        started = time.monotonic()
        try:
            await self._look_at_candidates()
        finally:
            now = time.monotonic()
            self._sweep_cost += now - started
            if not self._backlog and now >= self._sweep_at:
                self._sweep_at = now + min(max(100 * self._sweep_cost, SWEEP_S[0]), SWEEP_S[1])

    async def _look_at_candidates(self) -> None:
        waiting = iter(await self._candidates())
        looking = [self._look_at_each(waiting) for _ in range(_LOOKS_AT_ONCE)]
        for outcome in await asyncio.gather(*looking, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def ask_by_the_clock(self) -> int:
        """Ask for the full rebuilds that the schedule says are due; return how many were asked for.

        Of all due times that passed since the schedule is in force only the last one counts, once per tenant, whoever
        asks. Tenants whose automatic builds pause are asked for when the pause is over.
        """
        expression = self._settings.builder.full_rebuild_schedule
        if expression is None:
            return 0
        async with self._database.write(ALL_TENANTS) as connection:
            row = await connection.fetchrow(sql("triggers.schedule_since"), FULL_REBUILD, expression)
            at = last_due(expression, row["now"]) if row is not None else None
            if row is None or at is None or at < row["since"]:
                return 0
            requests = await connection.fetch(
                sql("triggers.ask_all"),
                f"{SCHEDULED}{at:%Y-%m-%dT%H:%MZ}",
                at,
                f"full rebuild by the clock: {expression}",
            )
        if requests:
            logger.info("full rebuilds are due: %d tenants", len(requests), extra={"action": "schedule_due"})
        return len(requests)

    async def _look_at_each(self, tenants: Iterator[str]) -> None:
        for tenant in tenants:
            self._look_at.pop(tenant, None)
            self._backlog.pop(tenant, None)
            try:
                await self.look(tenant)
            except errors.UnavailableError:
                self._look_again(tenant, 0.0)
                raise
            except Exception:
                self._look_again(tenant, _LONGEST_OUTAGE_WAIT_S)
                logger.exception("a look at a tenant failed", extra={"action": "triggers_failed", "tenant": tenant})

    async def look(self, tenant: str) -> None:
        """Do what is next for one tenant: keep its build going, or queue the next one when it is due."""
        async with self._database.read(tenant) as connection:
            build = await connection.fetchrow(sql("builds.unfinished"), tenant)
        if build is None:
            build = await self._next_build(tenant)
        if build is not None:
            await self._keep_going(tenant, build)

    async def due(self, tenant: str) -> Due | None:
        """Return the automatic cause for which a tenant is due now; note when to look again if it is not yet.

        Of the tail only events are counted that no build has tried (`TriggerState.counts_past`), and none while
        automatic builds are paused, back off after a failure, or rest after a build (`rest_s`).
        """
        builder = self._settings.builder
        threshold = builder.max_unindexed_events
        async with self._database.read(tenant) as connection:
            row = await connection.fetchrow(sql("triggers.state"), tenant)
            if row is None or row["paused"]:
                return None
            if await connection.fetchrow(sql("snapshots.publishable_held"), tenant) is not None:
                return None
            state = TriggerState.from_row(row)
            base = state.counts_past
            last = await connection.fetchrow(sql("triggers.last_tail_event"), tenant, base)
            reaches = bool(threshold) and await connection.fetchval(sql("triggers.reaches"), tenant, base, threshold)
            is_long = outgrows = False
            # Counting costs as much as the tail is long, so it is done only where it decides something.
            if last is not None and rest_s(state, time_share=builder.time_share, min_interval_s=0.0):
                is_long = last["event_seq"] - base >= builder.long_tail_events and await connection.fetchval(
                    sql("triggers.reaches"), tenant, base, builder.long_tail_events
                )
            elif reaches and rest_s(state, time_share=builder.time_share, min_interval_s=builder.min_interval_s):
                outgrows = await connection.fetchval(
                    sql("triggers.outgrows"), tenant, state.cutoff, builder.long_tail_events
                )
        tail = None
        if last is None:
            self._quiet.pop(tenant, None)
        else:
            tail = Tail(
                last_event_seq=last["event_seq"],
                last_ingested_at=last["ingested_at"],
                quiet_s=self._quiet_for(tenant, last),
                reaches_threshold=reaches,
                is_long=is_long,
                outgrows_tree=outgrows,
            )
        answer = due(state, tail, builder)
        if isinstance(answer, Due) or answer is None:
            return answer
        self._look_again(tenant, answer)
        return None

    async def _candidates(self) -> list[str]:
        """Return whom to look at now: who has news or whose time has come, and then a slice of the sweep.

        Who has had a builder longest ago comes first. Builders wait for their slot in the order in which they were
        asked for, and a tenant waits with one at most, so between two builders of a tenant everybody else who waits
        has a turn.
        A sweep takes long with many tenants, so it goes in slices: nobody who is due waits for its end.
        """
        now = time.monotonic()
        if now >= self._clock_at:
            await self.ask_by_the_clock()
            self._clock_at = now + _CLOCK_S
        sweep = now >= self._sweep_at and not self._backlog
        async with self._database.read(ALL_TENANTS) as connection:
            news = await connection.fetch(sql("triggers.tenants_with_news"), 0 if sweep else self._cursor)
            waiting = await connection.fetch(sql("triggers.tenants_waiting"))
            paused = {row["tenant_id"] for row in await connection.fetch(sql("triggers.tenants_paused"))}
        candidates = {row["tenant_id"] for row in waiting}
        if sweep:
            self._sweep_cost = 0.0
            self._backlog = dict.fromkeys(row["tenant_id"] for row in news)
        if self._cursor or not sweep:  # to the first sweep of all, every tenant would be news
            candidates |= {row["tenant_id"] for row in news if row["event_seq"] > self._cursor}
        self._cursor = max([self._cursor, *(row["event_seq"] for row in news)])
        candidates |= {tenant for tenant, at in self._look_at.items() if at <= now}
        candidates |= self._paused - paused
        self._paused = paused
        return [
            *sorted(candidates, key=lambda tenant: (self._served.get(tenant, 0), tenant)),
            *itertools.islice((tenant for tenant in self._backlog if tenant not in candidates), _SWEEP_SLICE),
        ]

    async def _next_build(self, tenant: str) -> asyncpg.Record | None:
        build = await take_up(self._database, tenant)
        if build is None and await self.ask_when_due(tenant):
            build = await take_up(self._database, tenant)
        return build

    async def ask_when_due(self, tenant: str) -> bool:
        """Write down the request of a tenant that is due now; return whether it is."""
        due = await self.due(tenant)
        if due is not None:
            await self._registry.request_build(
                tenant, trigger=due.trigger, cause_key=due.cause_key, reason=due.reason, actor="trigger"
            )
        return due is not None

    async def _keep_going(self, tenant: str, build: asyncpg.Record) -> None:
        """See to it that somebody works on an unfinished build; fail it when builder after builder dies over it."""
        build_id = build["build_id"]
        launched = self._builders.setdefault((tenant, build_id), _Launched())
        if launched.task is not None and not launched.task.done():
            return
        mine_died = launched.task is not None
        if build["alive"] and not mine_died:
            return
        if mine_died and launched.died:
            progress = await self._progress(tenant, build)
            if progress != launched.progress:
                launched.died, launched.progress = 0, progress
        if launched.died >= MAX_LAUNCHES:
            error = errors.InternalError(
                f"{launched.died} builders in a row died without any progress; the last one: {launched.reason}"
            )
            await self._fail(tenant, build_id, error)
            return
        wait = launched.at + _RELAUNCH_S[min(launched.died, len(_RELAUNCH_S) - 1)] - time.monotonic()
        if launched.at and wait > 0:
            self._look_again(tenant, wait)
            return
        launched.at = time.monotonic()
        launched.died += 1
        self._served[tenant] = next(self._turn)
        launched.task = asyncio.create_task(self._run_builder(tenant, build_id, launched))

    async def _run_builder(self, tenant: str, build_id: str, launched: _Launched) -> int:
        """Have a builder work in turns until it ends; return its status."""
        logger.info("starting a builder", extra={"action": "builder_started", "tenant": tenant, "build_id": build_id})
        ended: int | None = None
        try:
            while ended is None:
                async with self._slots.slot(tenant) as slot:
                    ended = await self._work(tenant, build_id, slot, launched)
            status = ended
        except errors.MyriaError as error:
            status = await self._note_death(tenant, build_id, launched, error)
        except Exception as error:
            logger.exception("a builder could not be run", extra={"action": "builder_failed", "tenant": tenant})
            status = await self._note_death(tenant, build_id, launched, errors.InternalError(repr(error)))
        self._slots.ended(tenant, well=status in _ENDED_WELL)
        logger.info(
            "a builder ended with status %d",
            status,
            extra={"action": "builder_ended", "tenant": tenant, "build_id": build_id},
        )
        self._look_again(tenant, 0.0)
        self._wake.set()
        return status

    async def _note_death(self, tenant: str, build_id: str, launched: _Launched, error: errors.MyriaError) -> int:
        """Keep why a builder died, which `status` shows while the next one is tried; return its exit status.

        Where a person must act first, the next one would die too: the build fails at once.
        """
        launched.reason = f"{error.code}: {error.message}"
        logger.warning(
            "a builder died: %s",
            error.message,
            extra={"action": "builder_died", "tenant": tenant, "build_id": build_id},
        )
        try:
            if isinstance(error, errors.OperationalError):
                await self._fail(tenant, build_id, error)
            else:
                async with self._database.write(tenant) as connection:
                    document = orjson.dumps(error.to_json()).decode()
                    await connection.execute(sql("builds.note_death"), tenant, build_id, document)
        except errors.UnavailableError:
            logger.warning("why the builder died is not kept", extra={"action": "death_not_kept", "tenant": tenant})
        return error.exit_status

    async def _work(self, tenant: str, build_id: str, slot: BuilderSlot, launched: _Launched) -> int | None:
        """Run a builder until it ends; return its status, None where its turn was over before.

        A build whose builders have worked for `builder.timeout_s` fails.
        """
        began = time.monotonic()
        left_s = self._settings.builder.timeout_s - launched.worked_s
        working = asyncio.ensure_future(self._launch(tenant, build_id))
        over = asyncio.create_task(slot.over.wait())
        try:
            await asyncio.wait({working, over}, timeout=max(0.0, left_s), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            is_late = not slot.over.is_set()
        finally:
            over.cancel()
            working.cancel()
            await asyncio.gather(working, over, return_exceptions=True)
            launched.worked_s += time.monotonic() - began
        if is_late:
            timeout_s = self._settings.builder.timeout_s
            error = errors.BuildTimedOut(
                f"the build was ended after {timeout_s:g} s of work (builder.timeout_s)", timeout_s=timeout_s
            )
            outcome = await self._fail(tenant, build_id, error)
            return outcome.exit_status
        logger.info(
            "a builder gives way to others", extra={"action": "builder_waits", "tenant": tenant, "build_id": build_id}
        )
        return None

    async def _fail(self, tenant: str, build_id: str, error: errors.MyriaError) -> Outcome:
        return await end_without_result(
            self._database, tenant, build_id, Outcome.FAILED, error=error, settings=self._settings.builder
        )

    async def _progress(self, tenant: str, build: asyncpg.Record) -> tuple[str, int]:
        async with self._database.read(tenant) as connection:
            row = await connection.fetchrow(sql("builds.progress"), tenant, build["build_id"])
        return build["status"], row["tasks_done"] if row is not None else 0

    def _quiet_for(self, tenant: str, last: asyncpg.Record) -> float:
        """Return for how many seconds a tenant's last event has been the last.

        By the database's clock; when that has stepped back behind the event, by the time since it was first seen here.
        """
        seen = self._quiet.get(tenant)
        if seen is None or seen.event_seq != last["event_seq"]:
            seen = self._quiet[tenant] = _Quiet(last["event_seq"])
        quiet_s: float = last["quiet_s"]
        return quiet_s if quiet_s >= 0 else time.monotonic() - seen.seen_at

    def _look_again(self, tenant: str, after_s: float) -> None:
        at = time.monotonic() + max(0.0, after_s)
        self._look_at[tenant] = min(at, self._look_at.get(tenant, at))

    async def _sleep(self, longest: float) -> None:
        """Wait until the next look: `longest` seconds, less when a tenant's time comes or a builder ends."""
        now = time.monotonic()
        next_at = min([*self._look_at.values(), now + longest])
        try:
            async with asyncio.timeout(max(0.01, next_at - now)):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()
        self._forget_ended()

    def _forget_ended(self) -> None:
        """Forget builders of builds that nobody has looked at for an hour: they have ended."""
        now = time.monotonic()
        for key, launched in list(self._builders.items()):
            if (launched.task is None or launched.task.done()) and now - launched.at > 3600:
                del self._builders[key]
                self._served.pop(key[0], None)
