"""What every check works with: one transaction, the settings, and the checks with their results."""

from __future__ import annotations

import time
from array import array
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from myria.db.database import Connection, Database, translated
from myria.db.queries import sql
from myria.errors import DataCorrupted
from myria.settings.planner import PlannerSettings
from myria.topics.model import Participants

SHOWN_FAILURES = 20
"""Failures of a check that the report describes; all are counted."""

CHECKS: Mapping[str, str] = {
    "participants": "every scope is canonical, its key recomputes, its members are exactly its participants",
    "log": "every event has a scope, its idempotency key recomputes, its transaction is of this database",
    "withdrawals": "what withdrawals say of events is what the log gives when it is folded anew",
    "notes": "the notes are what the log gives when it is folded anew",
    "sessions": "the sessions are what the log gives when it is folded anew",
    "links": "the links between notes are what the log gives when it is folded anew",
    "feedback": "the feedback on tools is what the log gives when it is folded anew",
    "evaluations": "the ratings of notes are what the log gives when it is folded anew",
    "turns": "the turns, and how far their sessions have come, are what the log gives when it is folded anew",
    "registrations": "the agents and sessions of REST are what the log gives when it is folded anew",
    "receipts": "the receipts of erasures follow from each other, and name what is kept for them",
    "vectors": "every vector is of an event that may have one, with its model's dimensions, and none is missing",
    "leaf_refs": "every leaf's refs resolve to events of its own scope, in order, none internal; node_ids recompute",
    "renderings": "every rendering's id recomputes unless a receipt names it; children, topic, anchor event exist",
    "subjects": "every node of subjects recomputes from its children, which exist; roots and records have an owner",
    "snapshots": "every snapshot's state fits its build, and its tail bound hides no event",
    "lineage": "every kept snapshot's lineage is its parent's and itself",
    "active_pointer": "one active snapshot at most, and it is where the pointer and its history say",
    "staging": "nothing that was not published can be reached",
    "scope_roots": "every root row has its scope and rendering, under a number that something owns",
    "trees": "no child is missing or out of place; counts, spans and internal node_ids recompute",
    "coverage": "every event up to the cutoff, neither internal nor withdrawn, is in exactly one leaf of its scope",
    "search_blocks": "the search blocks hold exactly the scope's events, each under its leaf",
    "subject_trees": "subjects reach leaves of their scope's tree alone, and its leaves alone hold keys",
    "block_content": "every search block recomputes from its events, byte for byte",
    "replan": "planning every scope anew, by its stored plans where it has some, gives the same root renderings "
    "(archived snapshots of another planner or other settings are left out)",
    "vector_digests": "every vector stands under the digest of the text that its event says",
    "subjects_anew": "planning the subjects of all leaves anew gives the same root and the same holders of keys",
}
"""What each check proves, by its name; `DEEP` names the deep ones."""

DEEP = frozenset({"block_content", "replan", "subjects_anew", "vector_digests"})

Progress = Callable[[str, int, int], None]
"""Called with (check, done, total)."""


@dataclass(slots=True, kw_only=True)
class Check:
    """One invariant's result: how many things were examined, what failed, and how long it took in seconds."""

    name: str
    examined: int = 0
    failed: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def fail(self, message: str) -> None:
        """Record a failure; beyond the twentieth only its number."""
        self.failed += 1
        if len(self.failures) < SHOWN_FAILURES:
            self.failures.append(message)

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "check": self.name,
            "proves": CHECKS[self.name],
            "examined": self.examined,
            "failed": self.failed,
            "failures": list(self.failures),
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What a verification found. `unreachable` counts renderings that no root leads to: garbage, not a failure."""

    tenant: str
    snapshots: tuple[str, ...]
    checks: tuple[Check, ...]
    unreachable: int

    @property
    def failed(self) -> int:
        """The number of failures over all checks."""
        return sum(check.failed for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "tenant": self.tenant,
            "ok": self.failed == 0,
            "snapshots": list(self.snapshots),
            "unreachable_renderings": self.unreachable,
            "checks": [check.to_json() for check in self.checks],
        }


STREAM_ROWS = 500
"""Rows fetched at once."""

Seqs = npt.NDArray[np.int64]


class Examination:
    """One verification: its connection, its settings, and its checks by name."""

    def __init__(
        self,
        database: Database,
        connection: Connection,
        tenant: str,
        settings: PlannerSettings,
        *,
        deep: bool,
        progress: Progress,
    ) -> None:
        self.database = database
        self.connection = connection
        self.tenant = tenant
        self.settings = settings
        self.deep = deep
        self.progress = progress
        self.checks = {name: Check(name=name) for name in CHECKS if deep or name not in DEEP}

    @asynccontextmanager
    async def examining(self, name: str) -> AsyncIterator[Check]:
        """Lend a check for the block, count its time, and go on after data that cannot be read."""
        with self.timed(name) as check:
            async with self.enduring(check):
                yield check

    @contextmanager
    def timed(self, name: str) -> Iterator[Check]:
        """Lend a check for the block, and add the block's time to the check's."""
        check = self.checks[name]
        started_at = time.perf_counter()
        try:
            yield check
        finally:
            check.seconds += time.perf_counter() - started_at

    @asynccontextmanager
    async def enduring(self, check: Check) -> AsyncIterator[None]:
        """Fail a check with PostgreSQL's message, and go on, where the block meets data that PostgreSQL cannot read."""
        try:
            with translated():
                async with self.connection.transaction():  # a savepoint
                    yield
        except DataCorrupted as error:
            check.fail(f"not examined further: {error.message}")

    async def stream(self, check: Check, statement: str, total: int = 0) -> AsyncIterator[Any]:
        """Yield the rows of a statement about the tenant, and count each as examined by a check."""
        cursor = self.connection.cursor(sql(statement), self.tenant, prefetch=STREAM_ROWS)
        async for row in cursor:
            check.examined += 1
            if check.examined % STREAM_ROWS == 0:
                self.progress(check.name, check.examined, total)
            yield row

    async def count(self, table: str) -> int:
        """Return how many rows of the tenant a table has."""
        total: int = await self.connection.fetchval(sql("verify.count"), self.tenant, table)
        return total


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredSnapshot:
    """The row of a snapshot of any status."""

    snapshot_id: str
    number: int | None
    parent_snapshot_id: str | None
    status: str
    cutoff: int
    tail_xid: int
    lineage: Any
    planner_settings: str
    was_active: bool
    build_status: str | None

    @property
    def numbers(self) -> frozenset[int]:
        """The numbers in the lineage; they are few."""
        return frozenset(number for part in self.lineage for number in range(part.lower, part.upper))

    @property
    def is_kept(self) -> bool:
        """Whether readers may use it, now or after a publish or a rollback."""
        return self.status in ("active", "held", "archived")


@dataclass(frozen=True, kw_only=True, slots=True)
class ExaminedScope:
    """A scope with its tree in one snapshot."""

    scope_id: int
    participants: Participants
    root: bytes
    blocks: tuple[bytes, ...]
    cutoff: int


@dataclass(slots=True)
class TreeShape:
    """What a walk found in a tree.

    `leaf_ids` and `leaves`: node_ids and renderings of the leaves in order. `seqs` and `leaf_of`: the events, and for
    each the position of its leaf. `parent_of` and `level_of`: by rendering.
    """

    leaf_ids: list[bytes] = field(default_factory=list)
    leaves: list[bytes] = field(default_factory=list)
    seqs: array[int] = field(default_factory=lambda: array("q"))
    leaf_of: array[int] = field(default_factory=lambda: array("q"))
    parent_of: dict[bytes, bytes] = field(default_factory=dict)
    level_of: dict[bytes, int] = field(default_factory=dict)


async def erased_seqs(exam: Examination, scope_id: int) -> Seqs:
    """Return the numbers of a scope's erased events."""
    rows = await exam.connection.fetch(sql("verify.erased_seqs"), exam.tenant, scope_id)
    return np.array([row["event_seq"] for row in rows], dtype=np.int64)


def set_problems(held: Seqs, expected: Seqs, container: str) -> Iterator[str]:
    """Yield how the events that containers hold differ from those expected, of which each must be held once.

    `container` names what holds events, for the messages.
    """
    values, counts = np.unique(held, return_counts=True)
    for seq in values[counts > 1].tolist():
        yield f"event {seq} is in more than one {container}"
    for seq in np.setdiff1d(expected, values).tolist():
        yield f"event {seq} is in no {container}"
    for seq in np.setdiff1d(values, expected).tolist():
        yield f"event {seq} is in a {container}, but internal, past the cutoff or of another scope"
