"""Builds, parents and results as values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

import asyncpg
import orjson

from myria.values import value


class Outcome(StrEnum):
    """How a build ended; each has an exit code of its own."""

    SUCCEEDED = "succeeded"
    HELD = "held"
    NOTHING_TO_DO = "nothing_to_do"
    SUPERSEDED = "superseded"
    FAILED = "failed"
    ABORTED = "aborted"

    @property
    def exit_status(self) -> int:
        """0 for a build that did what it was asked for, or found nothing to do; see docs/errors.md for 4 and 7."""
        return {"succeeded": 0, "held": 0, "nothing_to_do": 0, "superseded": 4, "aborted": 4, "failed": 7}[self.value]


@value
class BuildRow:
    """A build as its row stores it; `counts` and `error` are JSON, times are aware datetimes."""

    build_id: str
    status: str
    trigger: str
    is_full: bool
    hold: bool
    reason: str | None
    request_id: str | None
    parent_snapshot_id: str | None
    snapshot_id: str | None
    cutoff: int | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    lease_until: datetime | None
    error: dict[str, Any] | None
    counts: dict[str, int]
    is_forced: bool = False

    @property
    def outcome(self) -> Outcome | None:
        """How it ended, None while it has not."""
        return Outcome(self.status) if self.finished_at is not None else None

    @classmethod
    def from_row(cls, row: asyncpg.Record) -> BuildRow:
        """Return the value of a row of `builds.get` and similar statements."""
        return cls(
            build_id=row["build_id"],
            status=row["status"],
            trigger=row["trigger"],
            is_full=row["is_full"],
            is_forced=row["is_forced"],
            hold=row["hold"],
            reason=row["reason"],
            request_id=row["request_id"],
            parent_snapshot_id=row["parent_snapshot_id"],
            snapshot_id=row["snapshot_id"],
            cutoff=row["cutoff"],
            created_at=row["created_at"],
            started_at=row["started_at"],
            finished_at=row["finished_at"],
            lease_until=row["lease_until"],
            error=orjson.loads(row["error"]) if row["error"] is not None else None,
            counts=orjson.loads(row["counts"]),
        )


@value
class Degraded:
    """How many of the units for which a model was asked were planned without it, and why, with the provider's words."""

    units: int
    of: int
    reason: str

    @classmethod
    def of_build(cls, counts: Mapping[str, int], reason: str | None) -> Degraded | None:
        """Return what a build's counts, and the reason of one of its tasks, say; None for a build that is not."""
        units = counts.get("llm_units_degraded", 0)
        if not units:
            return None
        planned = sum(counts.get(f"llm_units_{how}", 0) for how in ("planned", "reused"))
        return cls(units=units, of=units + planned, reason=reason or "the reason is no longer kept")

    def __str__(self) -> str:
        return f"degraded: {self.units} of {self.of} units were planned without the model: {self.reason}"


@value
class Resource:
    """The resource of an outside control plane, such as Kubernetes, on whose behalf something happens.

    `manager` is the field manager that asked, as it called itself: nobody has verified it.
    """

    name: str
    uid: str
    manager: str | None = None


@value
class Parent:
    """The snapshot a build starts from; `tail_xid` bounds index scans for what came after its cutoff."""

    snapshot_id: str
    cutoff: int
    tail_xid: str


@value
class RunningBuild:
    """A build whose cutoff is captured: everything its tasks need to know, the same for each of its workers.

    Events with event_seq in (parent.cutoff, cutoff] are new; `is_full` plans every scope anew from all its events.
    """

    tenant: str
    build_id: str
    snapshot_id: str
    number: int
    cutoff: int
    is_full: bool
    parent: Parent | None
    subjects_since: int = 0
    """Subjects that the parent has from before this number are of other rules and are planned anew."""


@value
class Task:
    """One claimed scope of a build; `attempt` is the fencing token, `failures` how often its work raised before.

    `eligible` is how many of its events in (parent cutoff, cutoff] count, None in a full build. `has_plans` tells that
    the tenant has stored plans of a language model.
    """

    scope_id: int
    participants: tuple[str, ...]
    attempt: int
    failures: int
    eligible: int | None
    has_plans: bool = False


class PartKind(StrEnum):
    """What is shared of a big scope's task: the units that begin in a range of its events, or its subjects."""

    UNITS = "units"
    SUBJECTS = "subjects"


@value
class TaskPart:
    """One claimed part of a scope's task; `attempt` is the fencing token.

    A part of units has those that begin at positions (timestamp, event_seq) from `begin` on, before `end`; None for the
    scope's end. `events` says how many lie between, withdrawn ones among them. A part of subjects is over the leaves of
    the tree of time at `root`.
    """

    scope_id: int
    participants: tuple[str, ...]
    kind: PartKind
    part: int
    attempt: int
    begin: tuple[int, int] | None = None
    end: tuple[int, int] | None = None
    events: int | None = None
    root: bytes | None = None

    @property
    def task(self) -> Task:
        """The task of the scope, as far as a helper needs to know it."""
        return Task(
            scope_id=self.scope_id, participants=self.participants, attempt=self.attempt, failures=0, eligible=None
        )
