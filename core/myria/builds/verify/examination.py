"""What every check works with: one transaction, the settings, and the checks themselves."""

from __future__ import annotations

import time
from array import array
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from myria.builds.verify.report import CHECKS, DEEP, Check, Progress
from myria.db.database import Connection, translated
from myria.db.queries import sql
from myria.errors import DataCorrupted
from myria.settings.planner import PlannerSettings
from myria.topics.model import Participants

STREAM_ROWS = 500
"""Rows fetched at once."""

Seqs = npt.NDArray[np.int64]


class Examination:
    """One verification: its connection, its settings, and its checks by name."""

    def __init__(
        self, connection: Connection, tenant: str, settings: PlannerSettings, *, deep: bool, progress: Progress
    ) -> None:
        self.connection = connection
        self.tenant = tenant
        self.settings = settings
        self.deep = deep
        self.progress = progress
        self.checks = {name: Check(name=name) for name in CHECKS if deep or name not in DEEP}

    @contextmanager
    def timed(self, name: str) -> Iterator[Check]:
        """Lend a check, and count the time that it is worked on."""
        check = self.checks[name]
        started = time.perf_counter()
        try:
            yield check
        finally:
            check.seconds += time.perf_counter() - started

    @asynccontextmanager
    async def enduring(self, check: Check) -> AsyncIterator[None]:
        """Go on after the block where PostgreSQL cannot read what it stored: the check fails with its words."""
        try:
            with translated():
                async with self.connection.transaction():  # a savepoint
                    yield
        except DataCorrupted as error:
            check.fail(f"not examined further: {error.message}")

    async def stream(self, check: Check, statement: str, total: int = 0) -> AsyncIterator[Any]:
        """Yield the rows of a statement of the tenant, each counted as examined by a check."""
        cursor = self.connection.cursor(sql(statement), self.tenant, prefetch=STREAM_ROWS)
        async for row in cursor:
            check.examined += 1
            if check.examined % STREAM_ROWS == 0:
                self.progress(check.name, check.examined, total)
            yield row

    async def count(self, statement: str, *arguments: str) -> int:
        """Return the number that a statement of the tenant gives."""
        total: int = await self.connection.fetchval(sql(statement), self.tenant, *arguments)
        return total


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredSnapshot:
    """The row of a snapshot, whatever became of it."""

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
        """Whether somebody may be reading it."""
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
    """What a walked tree holds: its leaves in order, and which of them holds each event."""

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


def set_problems(held: Seqs, wanted: Seqs, what: str) -> Iterator[str]:
    """Yield how two lists differ that must hold the same numbers, each once."""
    values, counts = np.unique(held, return_counts=True)
    for seq in values[counts > 1].tolist():
        yield f"event {seq} is in more than one {what}"
    for seq in np.setdiff1d(wanted, values).tolist():
        yield f"event {seq} is in no {what}"
    for seq in np.setdiff1d(values, wanted).tolist():
        yield f"event {seq} is in a {what}, but internal, past the cutoff or of another scope"
