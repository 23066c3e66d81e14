"""Builds, parents and results as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

import asyncpg
import orjson


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


@dataclass(frozen=True, kw_only=True, slots=True)
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
        columns = {each.name: row[each.name] for each in fields(cls)}
        error = orjson.loads(row["error"]) if row["error"] is not None else None
        return cls(**{**columns, "error": error, "counts": orjson.loads(row["counts"])})


DEGRADED_STANDING = "llm_units_degraded_standing"
"""A count: units of a snapshot that this build or those before it planned without the model that was asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Degraded:
    """Units that were planned without the model that was asked for, and why, with the provider's words.

    `units` of the `of` for which this build wanted a model; `standing` in the snapshot, with those of builds before.
    """

    units: int
    of: int
    standing: int
    reason: str

    @classmethod
    def of_build(cls, counts: Mapping[str, int], reason: str | None) -> Degraded | None:
        """Return what the counts of a build or its snapshot say, with the reason of a task; None where all is well."""
        units, standing = counts.get("llm_units_degraded", 0), counts.get(DEGRADED_STANDING, 0)
        if not units and not standing:
            return None
        planned = sum(counts.get(f"llm_units_{how}", 0) for how in ("planned", "reused"))
        reason = reason or "the reason is no longer kept"
        return cls(units=units, of=units + planned, standing=standing, reason=reason)

    def __str__(self) -> str:
        if self.units:
            was = "unit was" if self.of == 1 else "units were"
            told = f"{self.units} of {self.of} {was} planned without the model"
        else:
            stand = "unit of builds before stands" if self.standing == 1 else "units of builds before stand"
            told = f"{self.standing} {stand} planned without the model"
        more = f" ({self.standing} in the whole snapshot)" if self.units and self.standing > self.units else ""
        return f"degraded: {told}{more}: {self.reason}; a full build asks for them again"


@dataclass(frozen=True, kw_only=True, slots=True)
class Resource:
    """The resource of an outside control plane, such as Kubernetes, on whose behalf something happens.

    `manager` is the field manager that asked, as it called itself: nobody has verified it.
    """

    name: str
    uid: str
    manager: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Parent:
    """The snapshot a build starts from; `tail_xid` bounds index scans for what came after its cutoff."""

    snapshot_id: str
    cutoff: int
    tail_xid: str


@dataclass(frozen=True, kw_only=True, slots=True)
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


@dataclass(frozen=True, kw_only=True, slots=True)
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


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskPart:
    """One claimed part of a scope's task, whose attempt is the fencing token.

    Its units begin at positions (timestamp, event_seq) from `begin` on, before `end`; None for the scope's end.
    `events` says how many lie between, withdrawn ones among them.
    """

    task: Task
    part: int
    begin: tuple[int, int] | None
    end: tuple[int, int] | None
    events: int
