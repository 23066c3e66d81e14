"""A build's facts as one value, and as the status fields of its Kubernetes resource.

Pure functions. The operator and the build's own pods report through the same one, so it does not matter which reports
last, and a build whose pods could not report gets the same status. Only the operator writes the end of a build
(`completedAt`, `durationSeconds`) and its progress, together with the conditions that say the same, so that no version
of the resource contradicts itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import fields as fields_of
from datetime import datetime
from typing import Final

import asyncpg

from myria.builds.model import BuildRow, Outcome
from myria.db.clock import to_microseconds, to_rfc3339
from myria_rebuilds.resource import Json

MAX_COUNTS = 64
"""How many counts `status.counts` may hold."""

_WITH_DECIMAL_S: Final = 9.95
"""Shorter durations keep a decimal; from here on they would be rounded to 10.0."""

_CAPTURED: Final = ("buildID", "previousSnapshotID", "cutoff", "eventRange", "startedAt")


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildFacts:
    """A build with what its tasks and its snapshot say, as PostgreSQL has them at one moment (`rebuilds.facts`).

    `alive`: somebody renewed the lease lately. `podless_s`: seconds since its Job was made or a pod was last seen at
    work, whichever was later, None before. `degraded_reason`: of one of the degraded tasks. `completed`: the snapshot
    was compiled and validated. `published`: it is or was the active one. `parent_is_active`: the pointer still stands
    where the build began. `requested_at`: when somebody asked for it.
    """

    tenant: str
    row: BuildRow
    job_uid: str | None
    suspended: bool
    alive: bool
    podless_s: float | None
    tasks: int
    done: int
    degraded: int
    first_event_seq: int | None
    completed: bool
    published: bool
    parent_is_active: bool
    requested_at: datetime
    degraded_reason: str | None = None

    @property
    def outcome(self) -> Outcome | None:
        """How it ended, None while it has not."""
        return self.row.outcome

    @classmethod
    def from_row(cls, row: asyncpg.Record) -> BuildFacts:
        """Return the value of a row of `rebuilds.facts`."""
        values = {column.name: row[column.name] for column in fields_of(cls) if column.name not in {"tenant", "row"}}
        return cls(tenant=row["tenant_id"], row=BuildRow.from_row(row), **values)


def status_fields(build: BuildFacts) -> Json:
    """Return the fields of a MyriaRebuild's status that a build determines; conditions are not among them."""
    row = build.row
    fields: Json = {"buildID": row.build_id}
    if row.snapshot_id is not None:
        fields["snapshotID"] = row.snapshot_id
        fields["progress"] = {"tasks": build.tasks, "done": build.done, "degraded": build.degraded}
    if row.parent_snapshot_id is not None:
        fields["previousSnapshotID"] = row.parent_snapshot_id
    if row.cutoff is not None:
        fields["cutoff"] = row.cutoff
        if build.first_event_seq is not None and build.first_event_seq <= row.cutoff:
            fields["eventRange"] = {"first": build.first_event_seq, "last": row.cutoff}
    if row.counts:
        fields["counts"] = counts(row.counts)
    if row.started_at is not None:
        fields["startedAt"] = _seconds(to_microseconds(row.started_at))
    if row.finished_at is not None:
        fields["completedAt"] = _seconds(to_microseconds(row.finished_at))
        if row.started_at is not None:
            fields["durationSeconds"] = duration(build.requested_at, row.finished_at)
    return fields


def duration(begin: datetime, end: datetime) -> float:
    """Return the seconds between two moments as people read them: below ten with a decimal, above without."""
    seconds = max(0.0, (end - begin).total_seconds())
    return round(seconds, 1) if seconds < _WITH_DECIMAL_S else round(seconds)


def pod_fields(build: BuildFacts) -> Json:
    """Return those fields of `status_fields` that a pod reports.

    They never change again after the build has captured its cutoff; the counts and the snapshot, which a build with
    nothing to do drops, after it has ended. So a pod's report is still true however late it arrives.
    """
    fields = status_fields(build)
    reported = _CAPTURED if build.outcome is None else (*_CAPTURED, "snapshotID", "counts")
    return {name: fields[name] for name in reported if name in fields}


def counts(counted: Mapping[str, int]) -> Json:
    """Return the first `MAX_COUNTS` counts in order of their names; the resource's schema allows no more."""
    return {name: int(counted[name]) for name in sorted(counted)[:MAX_COUNTS]}


def _seconds(microseconds: int) -> str:
    """Return RFC 3339 in whole seconds, as Kubernetes writes times."""
    return to_rfc3339(microseconds - microseconds % 1_000_000)
