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
"""Least and most seconds between two looks at every tenant, which find what the hints missed. Between these bounds, the
pause is a hundred times as long as the look took."""

MAX_LAUNCHES = 12
"""Builders in a row that may die without any progress of their build before it fails."""

FULL_REBUILD = "full_rebuild"
"""The name of the schedule of full rebuilds in the database."""

_SCHEDULE_CHECK_S = 10.0
"""Seconds between two looks at the schedule, which is exact to the minute."""

_SWEEP_SLICE = 40
"""Tenants of a sweep that one step looks at."""

_LOOKS_AT_ONCE = 4
"""Tenants that are looked at side by side: most of a look is waiting for an answer."""

_ENDED_WELL = frozenset(outcome.exit_status for outcome in Outcome if outcome is not Outcome.FAILED)
"""Exit statuses of builders after which a tenant does not count as slow (`BuilderSlots`)."""

_RELAUNCH_S = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds between two launches of a build's builder, by how many have died in a row without progress."""

_LONGEST_OUTAGE_WAIT_S = 5.0


@dataclass(slots=True)
class _Launched:
    """What this process knows of a build's builders.

    `task`: the builder at work, or waiting for its slot. `died`: launches since the last progress, each counted as a
    death until progress is seen. `at`: when the last one was launched, on the monotonic clock; 0 before the first.
    `worked_s`: for how many seconds all of them worked. `progress`: the build's status and finished tasks as last seen.
    `reason`: why the last one died.
    """

    task: asyncio.Task[int] | None = None
    died: int = 0
    at: float = 0.0
    worked_s: float = 0.0
    progress: tuple[str, int] = ("", 0)
    reason: str = "it did not say why"


@dataclass(slots=True)
class _Quiet:
    """A tenant's last event and when this process first saw it; used when the database's clock has stepped back."""

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
        self._newest_seen_seq = 0
        """The greatest event number that a look has seen: tenants with later events have news."""
        # Times are of the monotonic clock; 0 is due at once.
        self._next_schedule_check = 0.0
        self._next_sweep = 0.0
        self._sweep_took_s = 0.0
        self._backlog: dict[str, None] = {}
        """Tenants that the sweep under way has not looked at yet, in order: a dict serves as an ordered set."""
        self._paused: set[str] = set()
        self._next_look: dict[str, float] = {}
        """By tenant, when to look at it again even without news."""
        self._last_events: dict[str, _Quiet] = {}
        self._builders: dict[tuple[str, str], _Launched] = {}
        """By tenant and build id."""
        self._launch_number: dict[str, int] = {}
        """By tenant, which launch of this process its last builder was: low numbers were longest ago."""
        self._launch_numbers = itertools.count(1)
        self._wake = asyncio.Event()
        """Set when a builder ends, to look at its tenant at once."""

    async def run(self) -> None:
        """Look for work until cancelled, then end the builders; while the database is away, wait and retry."""
        side_tasks = list(map(asyncio.create_task, self._side_jobs()))
        wait_s = self._settings.builder.poll_s
        try:
            while True:
                started_at = time.monotonic()
                step_failed = True
                try:
                    await self.step()
                    took_s = time.monotonic() - started_at
                    # A sweep goes on at half speed; otherwise a long look is followed by twice as long a pause.
                    wait_s = took_s if self._backlog else max(self._settings.builder.poll_s, 2 * took_s)
                    step_failed = False
                except errors.MyriaError as error:
                    wait_s = min(max(wait_s, 0.25) * 2, _LONGEST_OUTAGE_WAIT_S)
                    logger.warning("triggers wait: %s", error.message, extra={"action": "triggers_wait"})
                except Exception:
                    wait_s = _LONGEST_OUTAGE_WAIT_S
                    logger.exception("a look for due builds failed", extra={"action": "triggers_failed"})
                # After a failure no tenant's time shortens the wait: nobody can be looked at.
                await (asyncio.sleep(wait_s) if step_failed else self._sleep(wait_s))
        finally:
            for task in side_tasks:
                task.cancel()
            await asyncio.gather(*side_tasks, return_exceptions=True)
            await self.close()

    def _side_jobs(self) -> Sequence[Coroutine[Any, Any, Any]]:
        """Return the coroutines to run beside the search for builds; none here, subclasses add theirs."""
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
        started_at = time.monotonic()
        try:
            # One iterator for all: each look takes the next tenant as soon as it is free.
            tenants = iter(await self._candidates())
            looks = [self._look_at_each(tenants) for _ in range(_LOOKS_AT_ONCE)]
            for outcome in await asyncio.gather(*looks, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome
        finally:
            now = time.monotonic()
            self._sweep_took_s += now - started_at
            if not self._backlog and now >= self._next_sweep:
                self._next_sweep = now + min(max(100 * self._sweep_took_s, SWEEP_S[0]), SWEEP_S[1])

    async def ask_by_the_clock(self) -> int:
        """Request the full rebuilds that the schedule says are due; return for how many tenants.

        Of all due times since the schedule came into force, only the last one counts, and each tenant gets one request
        for it, even when several loops ask. Tenants whose automatic builds pause get theirs when the pause is over.
        """
        expression = self._settings.builder.full_rebuild_schedule
        if expression is None:
            return 0
        async with self._database.write(ALL_TENANTS) as connection:
            row = await connection.fetchrow(sql("triggers.schedule_since"), FULL_REBUILD, expression)
            due_at = last_due(expression, row["now"]) if row is not None else None
            if row is None or due_at is None or due_at < row["since"]:
                return 0
            requests = await connection.fetch(
                sql("triggers.ask_all"),
                f"{SCHEDULED}{due_at:%Y-%m-%dT%H:%MZ}",
                due_at,
                f"full rebuild by the clock: {expression}",
            )
        if requests:
            logger.info("full rebuilds are due: %d tenants", len(requests), extra={"action": "schedule_due"})
        return len(requests)

    async def _look_at_each(self, tenants: Iterator[str]) -> None:
        for tenant in tenants:
            self._next_look.pop(tenant, None)
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
        """Keep one tenant's unfinished build going, or queue its next build when one is due."""
        async with self._database.read(tenant) as connection:
            build = await connection.fetchrow(sql("builds.unfinished"), tenant)
        if build is None:
            build = await take_up(self._database, tenant)
        if build is None and await self.ask_when_due(tenant):
            build = await take_up(self._database, tenant)
        if build is not None:
            await self._keep_going(tenant, build)

    async def due(self, tenant: str) -> Due | None:
        """Return the automatic cause for which a tenant is due now, else None and note when to look at it again.

        Counts only events of the tail that no build has tried (`TriggerState.counts_past`). No cause is due while
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
            counted_from = state.counts_past
            last_event = await connection.fetchrow(sql("triggers.last_tail_event"), tenant, counted_from)
            reaches_threshold = bool(threshold) and await connection.fetchval(
                sql("triggers.reaches"), tenant, counted_from, threshold
            )
            is_long = outgrows_tree = False
            # Counting costs as much as the tail is long, so it is done only where it decides something.
            if last_event is not None and rest_s(state, time_share=builder.time_share, min_interval_s=0.0):
                is_long = last_event[
                    "event_seq"
                ] - counted_from >= builder.long_tail_events and await connection.fetchval(
                    sql("triggers.reaches"), tenant, counted_from, builder.long_tail_events
                )
            elif reaches_threshold and rest_s(
                state, time_share=builder.time_share, min_interval_s=builder.min_interval_s
            ):
                outgrows_tree = await connection.fetchval(
                    sql("triggers.outgrows"), tenant, state.cutoff, builder.long_tail_events
                )
        tail = None
        if last_event is None:
            self._last_events.pop(tenant, None)
        else:
            tail = Tail(
                last_event_seq=last_event["event_seq"],
                last_ingested_at=last_event["ingested_at"],
                quiet_s=self._quiet_for(tenant, last_event),
                reaches_threshold=reaches_threshold,
                is_long=is_long,
                outgrows_tree=outgrows_tree,
            )
        cause_or_wait_s = due(state, tail, builder)
        if isinstance(cause_or_wait_s, Due) or cause_or_wait_s is None:
            return cause_or_wait_s
        self._look_again(tenant, cause_or_wait_s)
        return None

    async def _candidates(self) -> list[str]:
        """Return the tenants to look at now: those with news or whose time has come, then a slice of the sweep.

        The tenant whose last builder was launched longest ago comes first. Builders get their slots in the order in
        which they were asked for, and a tenant has one builder at most, so between two builders of a tenant every
        other tenant that waits gets one.
        A sweep over many tenants takes long, so it goes in slices: a tenant that is due need not wait for its end.
        """
        now = time.monotonic()
        if now >= self._next_schedule_check:
            await self.ask_by_the_clock()
            self._next_schedule_check = now + _SCHEDULE_CHECK_S
        begins_sweep = now >= self._next_sweep and not self._backlog
        async with self._database.read(ALL_TENANTS) as connection:
            # A sweep asks for the tenants with events after number 0, which are all.
            tenants_with_news = await connection.fetch(
                sql("triggers.tenants_with_news"), 0 if begins_sweep else self._newest_seen_seq
            )
            tenants_waiting = await connection.fetch(sql("triggers.tenants_waiting"))
            paused_tenants = {row["tenant_id"] for row in await connection.fetch(sql("triggers.tenants_paused"))}
        candidates = {row["tenant_id"] for row in tenants_waiting}
        if begins_sweep:
            self._sweep_took_s = 0.0
            self._backlog = dict.fromkeys(row["tenant_id"] for row in tenants_with_news)
        if self._newest_seen_seq or not begins_sweep:  # to the first sweep of all, every tenant would be news
            candidates |= {row["tenant_id"] for row in tenants_with_news if row["event_seq"] > self._newest_seen_seq}
        self._newest_seen_seq = max([self._newest_seen_seq, *(row["event_seq"] for row in tenants_with_news)])
        candidates |= {tenant for tenant, look_at in self._next_look.items() if look_at <= now}
        candidates |= self._paused - paused_tenants  # their pause has just ended
        self._paused = paused_tenants
        return [
            *sorted(candidates, key=lambda tenant: (self._launch_number.get(tenant, 0), tenant)),
            *itertools.islice((tenant for tenant in self._backlog if tenant not in candidates), _SWEEP_SLICE),
        ]

    async def ask_when_due(self, tenant: str) -> bool:
        """Request a build for a tenant when it is due now; return whether it is."""
        cause = await self.due(tenant)
        if cause is not None:
            await self._registry.request_build(
                tenant, trigger=cause.trigger, cause_key=cause.cause_key, reason=cause.reason, actor="trigger"
            )
        return cause is not None

    async def _keep_going(self, tenant: str, build: asyncpg.Record) -> None:
        """Launch a builder for an unfinished build unless one works on it; fail it after `MAX_LAUNCHES` deaths.

        `builds.alive` says that some builder, maybe another loop's, renewed the build's lease lately.
        """
        build_id = build["build_id"]
        launched = self._builders.setdefault((tenant, build_id), _Launched())
        if launched.task is not None and not launched.task.done():
            return
        own_builder_ended = launched.task is not None
        if build["alive"] and not own_builder_ended:
            return
        if own_builder_ended and launched.died:
            progress = await self._progress(tenant, build)
            if progress != launched.progress:
                launched.died, launched.progress = 0, progress
        if launched.died >= MAX_LAUNCHES:
            error = errors.InternalError(
                f"{launched.died} builders in a row died without any progress; the last one: {launched.reason}"
            )
            await self._fail(tenant, build_id, error)
            return
        wait_s = launched.at + _RELAUNCH_S[min(launched.died, len(_RELAUNCH_S) - 1)] - time.monotonic()
        if launched.at and wait_s > 0:
            self._look_again(tenant, wait_s)
            return
        launched.at = time.monotonic()
        launched.died += 1  # until progress shows otherwise
        self._launch_number[tenant] = next(self._launch_numbers)
        launched.task = asyncio.create_task(self._run_builder(tenant, build_id, launched))

    async def _run_builder(self, tenant: str, build_id: str, launched: _Launched) -> int:
        """Run a build's builder, one turn in a slot after the other, until it ends; return its exit status."""
        logger.info("starting a builder", extra={"action": "builder_started", "tenant": tenant, "build_id": build_id})
        ended_with: int | None = None
        try:
            while ended_with is None:
                async with self._slots.slot(tenant) as slot:
                    ended_with = await self._run_in_slot(tenant, build_id, slot, launched)
            status = ended_with
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
        """Store why a builder died, for `status` to show while the next one is tried; return its exit status.

        After an `OperationalError` a person must act first and the next builder would die too: fail the build at once.
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

    async def _run_in_slot(self, tenant: str, build_id: str, slot: BuilderSlot, launched: _Launched) -> int | None:
        """Run a builder until it ends and return its exit status; None where its turn in the slot ended first.

        Fails the build once its builders have worked for `builder.timeout_s` together.
        """
        started_at = time.monotonic()
        left_s = self._settings.builder.timeout_s - launched.worked_s
        builder = asyncio.ensure_future(self._launch(tenant, build_id))
        turn_over = asyncio.create_task(slot.over.wait())
        try:
            await asyncio.wait({builder, turn_over}, timeout=max(0.0, left_s), return_when=asyncio.FIRST_COMPLETED)
            if builder.done():
                return builder.result()
            is_timed_out = not slot.over.is_set()
        finally:
            turn_over.cancel()
            builder.cancel()
            await asyncio.gather(builder, turn_over, return_exceptions=True)
            launched.worked_s += time.monotonic() - started_at
        if is_timed_out:
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
        """Return a build's status and its number of finished tasks: while these stay the same, there is no progress."""
        async with self._database.read(tenant) as connection:
            row = await connection.fetchrow(sql("builds.progress"), tenant, build["build_id"])
        return build["status"], row["tasks_done"] if row is not None else 0

    def _quiet_for(self, tenant: str, last_event: asyncpg.Record) -> float:
        """Return for how many seconds a tenant's last event has been the last.

        The database's clock decides. When that has stepped back before the event, the time counts since this process
        first saw the event.
        """
        first_seen = self._last_events.get(tenant)
        if first_seen is None or first_seen.event_seq != last_event["event_seq"]:
            first_seen = self._last_events[tenant] = _Quiet(last_event["event_seq"])
        quiet_s: float = last_event["quiet_s"]
        return quiet_s if quiet_s >= 0 else time.monotonic() - first_seen.seen_at

    def _look_again(self, tenant: str, after_s: float) -> None:
        look_at = time.monotonic() + max(0.0, after_s)
        self._next_look[tenant] = min(look_at, self._next_look.get(tenant, look_at))

    async def _sleep(self, longest_s: float) -> None:
        """Wait until the next look: `longest_s` seconds, less when a tenant's time comes or a builder ends."""
        now = time.monotonic()
        next_at = min([*self._next_look.values(), now + longest_s])
        try:
            async with asyncio.timeout(max(0.01, next_at - now)):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()
        self._forget_ended()

    def _forget_ended(self) -> None:
        """Forget the builders of builds that have had no launch for an hour and none at work: those builds ended."""
        now = time.monotonic()
        for key, launched in list(self._builders.items()):
            if (launched.task is None or launched.task.done()) and now - launched.at > 3600:
                del self._builders[key]
                self._launch_number.pop(key[0], None)
