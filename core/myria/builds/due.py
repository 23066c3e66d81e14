"""Decides when a tenant is due for an automatic build, purely from what PostgreSQL says about the tenant.

Every time here is a difference on the database's clock, so that no process's own clock decides anything.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Literal

import asyncpg

from myria.builds.model import BuildRow
from myria.db.clock import to_microseconds
from myria.settings import BuilderSettings

Trigger = Literal["manual", "inactivity", "tail_threshold"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Due:
    """An automatic cause of a build; two causes with the same `cause_key` are one."""

    trigger: Trigger
    cause_key: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NewestBuild:
    """The tenant's newest build.

    `transient`: it failed, and nothing suggests that its events are to blame. `ended_s`: seconds since it ended, None
    while it has not. `took_s`: for how many seconds it ran; 0 for a manual build, so that what people ask for does not
    slow the triggers down.
    """

    build_id: str
    status: str
    cutoff: int | None
    transient: bool
    created_at: datetime
    finished_at: datetime | None
    ended_s: float | None
    took_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class TriggerState:
    """What the triggers of one tenant depend on beside its tail (`triggers.state`).

    `attempted_cutoff` is the greatest cutoff that any build tried since the last rollback; `retry_in_s` the seconds
    until a failure has been waited out, None when there is none.
    """

    cutoff: int
    attempted_cutoff: int
    moved_at: datetime | None
    paused: bool
    retry_in_s: float | None
    newest: NewestBuild | None

    @classmethod
    def from_row(cls, row: asyncpg.Record) -> TriggerState:
        """Return the state in a row of `triggers.state`."""
        newest = None
        if row["newest_build_id"] is not None:
            newest = NewestBuild(**{column.name: row[f"newest_{column.name}"] for column in fields(NewestBuild)})
        return cls(
            cutoff=row["cutoff"],
            attempted_cutoff=row["attempted_cutoff"],
            moved_at=row["moved_at"],
            paused=row["paused"],
            retry_in_s=row["retry_in_s"] if row["backing_off"] else None,
            newest=newest,
        )

    @property
    def counts_past(self) -> int:
        """The event number past which events count for the triggers.

        Events that a build has tried already do not count: no trigger tries them again. After two ends of a build they
        do, as these say nothing about the events: it was superseded, or it failed for a reason that another attempt
        may not meet (its worker was lost, the database was away).
        """
        newest = self.newest
        if newest is not None and (newest.status == "superseded" or (newest.status == "failed" and newest.transient)):
            return self.cutoff
        return max(self.cutoff, self.attempted_cutoff)

    @property
    def aborted_early_at(self) -> datetime | None:
        """When the newest build was aborted before it had a cutoff, None otherwise.

        None as well when the pointer has moved since it was queued: then it was meant for another snapshot.
        """
        newest = self.newest
        if newest is None or newest.status != "aborted" or newest.cutoff is not None:
            return None
        if self.moved_at is not None and newest.created_at <= self.moved_at:
            return None
        return newest.finished_at


@dataclass(frozen=True, kw_only=True, slots=True)
class Tail:
    """The events past `TriggerState.counts_past` that count.

    `reaches_threshold`: there are at least `builder.max_unindexed_events`. `quiet_s`: for how long the last one has
    been the last. `is_long`: there are at least `builder.long_tail_events`. `outgrows_tree`: there are at least as many
    as are in topics.
    """

    last_event_seq: int
    last_ingested_at: datetime
    quiet_s: float
    reaches_threshold: bool
    is_long: bool = False
    outgrows_tree: bool = False


def rest_s(state: TriggerState, *, time_share: float, min_interval_s: float) -> float:
    """Return for how many seconds from now the tenant must not build, so that builds take `time_share` of the time.

    At least `min_interval_s` seconds lie between the end of the last build and the next one.
    """
    newest = state.newest
    if newest is None or newest.ended_s is None or newest.ended_s < 0:
        # A clock that stepped back behind the end of the build keeps nobody waiting.
        return 0.0
    rest = max(newest.took_s * (1 / time_share - 1), min_interval_s)
    return max(0.0, rest - newest.ended_s)


def resting_until(newest: BuildRow | None, settings: BuilderSettings) -> datetime | None:
    """Return until when automatic builds rest after the newest one; None while it runs, and if somebody asked for it.

    A tail of `builder.long_tail_events` ends that earlier.
    """
    if newest is None or newest.started_at is None or newest.finished_at is None or newest.trigger == "manual":
        return None
    return newest.finished_at + (newest.finished_at - newest.started_at) * (1 / settings.time_share - 1)


def due(state: TriggerState, tail: Tail | None, settings: BuilderSettings) -> Due | float | None:
    """Return the cause for which a tenant is due now, else in how many seconds to look again.

    None: look again only when something happens, such as a new event.
    """
    if state.paused or tail is None:
        return None
    if state.newest is not None and state.newest.finished_at is None:
        # Another loop has just queued a build that will take the tail in: two loops must not ask for it twice.
        return None
    if state.retry_in_s is not None:
        return state.retry_in_s
    aborted_at = state.aborted_early_at
    if aborted_at is not None and tail.last_ingested_at <= aborted_at:
        return None
    moved_at = to_microseconds(state.moved_at) if state.moved_at is not None else 0
    # Part of the cause's key: the same for all loops that look now, and another once a build ends or the pointer moves.
    situation = f"{moved_at}:{state.newest.build_id if state.newest is not None else ''}"
    time_share = settings.long_tail_time_share if tail.is_long else settings.time_share
    cost_s = rest_s(state, time_share=time_share, min_interval_s=0.0)
    threshold_s = rest_s(
        state, time_share=time_share, min_interval_s=0.0 if tail.outgrows_tree else settings.min_interval_s
    )
    if tail.reaches_threshold and not threshold_s:
        return Due(
            trigger="tail_threshold",
            cause_key=f"tail_threshold:{situation}:{state.counts_past}",
            reason=f"{settings.max_unindexed_events} events past the last build",
        )
    waits_s = [threshold_s] if tail.reaches_threshold else []
    if settings.inactivity_timeout_s:
        inactivity_s = max(settings.inactivity_timeout_s - tail.quiet_s, cost_s)
        waits_s.append(inactivity_s)
    if not waits_s or min(waits_s) > 0:
        return min(waits_s, default=None)
    return Due(
        trigger="inactivity",
        cause_key=f"inactivity:{situation}:{tail.last_event_seq}",
        reason=f"no new event for {settings.inactivity_timeout_s:g} s",
    )
