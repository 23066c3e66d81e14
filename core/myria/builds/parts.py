"""Parts of one big scope's task, which several workers of a build plan at the same time.

The worker that has the scope's task divides it, plans parts itself, waits for those of others and puts the results
together; only this worker can finish the task. Workers that find no task help with parts. Where parts begin depends
only on the cutoff, and what they give only on the events, so a worker that takes the task over can use the parts that
are done. A part has a lease and an attempt, as a task has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import asyncpg
import orjson

from myria.builds.model import RunningBuild, Task, TaskPart
from myria.db.clock import to_microseconds
from myria.db.database import Database
from myria.db.fence import adding_to
from myria.db.queries import sql

SHARED_EVENTS = 4_096
"""A scope of at least so many events is divided."""

_MAX_HELPER_ATTEMPTS = 3
"""How often helpers may claim a part: one that kills them is left to the worker that has the scope's task."""

_PART_EVENTS = 1_024
_MAX_PARTS = 256


def part_events(events: int) -> int:
    """Return how many events each part of a scope has; 0 where the scope is not divided.

    At least `_PART_EVENTS`, and more where there would be over `_MAX_PARTS` parts.
    """
    return max(_PART_EVENTS, -(-events // _MAX_PARTS)) if events >= SHARED_EVENTS else 0


class Parts:
    """The parts of a build's big scopes, as one worker divides, claims and finishes them.

    Args:
        database: where they are.
        build: the build.
        worker: the name of this worker.
        lease_s: seconds after which a silent worker's part may be taken over.
    """

    def __init__(self, database: Database, build: RunningBuild, worker: str, lease_s: float) -> None:
        self._database = database
        self._build = build
        self._worker = worker
        self._lease_s = lease_s

    async def divide(self, scope_id: int, events: int) -> bool:
        """Store a scope's parts; return False where a scope of so many events is not divided."""
        events_per_part = part_events(events)
        if events_per_part:
            async with adding_to(self._database, self._build.tenant, self._build.build_id) as connection:
                await connection.execute(
                    sql("builds.divide_scope"), *self._key(scope_id), self._build.cutoff, events_per_part
                )
        return events_per_part > 0

    async def claim(self, scope_id: int | None = None) -> TaskPart | None:
        """Claim the next free part, of any scope or, for the worker that has its task, of one; None if none is free.

        A part at which a helper failed, or that ended several helpers, is left to the worker that has the task.
        """
        tenant, build_id = self._build.tenant, self._build.build_id
        async with self._database.write(tenant) as connection:
            row = await connection.fetchrow(
                sql("builds.claim_part"), tenant, build_id, scope_id, self._worker, self._lease_s, _MAX_HELPER_ATTEMPTS
            )
        if row is None:
            return None
        task = Task(
            scope_id=row["scope_id"],
            participants=tuple(row["participants"]),
            attempt=row["attempt"],
            failures=0,
            eligible=None,
        )
        return TaskPart(
            task=task,
            part=row["part"],
            begin=_position(row, "begins"),
            end=_position(row, "ends"),
            events=row["events"],
        )

    async def renew(self, database: Database) -> bool:
        """Renew the leases of all parts that this worker has, by a connection of the heartbeat; False for none."""
        tenant, build_id = self._build.tenant, self._build.build_id
        async with database.write(tenant) as connection:
            rows = await connection.fetch(sql("builds.renew_parts"), tenant, build_id, self._worker, self._lease_s)
        return bool(rows)

    async def finish(self, part: TaskPart, result: Sequence[bytes], counts: Counter[str]) -> bool:
        """Mark a part as done; its nodes must be written. Return False when it went to another worker.

        Raises:
            LeaseLost: the build has ended.
        """
        async with adding_to(self._database, self._build.tenant, self._build.build_id) as connection:
            done = await connection.fetchval(
                sql("builds.finish_part"),
                *self._key(part.task.scope_id),
                part.part,
                part.task.attempt,
                list(result),
                orjson.dumps(dict(counts)).decode(),
            )
        return done is not None

    async def let_go(self) -> None:
        """Give back this worker's parts, so that the next worker need not wait for the leases to end."""
        tenant, build_id = self._build.tenant, self._build.build_id
        async with self._database.write(tenant) as connection:
            await connection.execute(sql("builds.drop_parts_leased_by"), tenant, build_id, [self._worker])

    async def leave(self, part: TaskPart) -> None:
        """Leave a part that this worker failed at to the worker that has the scope's task."""
        async with self._database.write(self._build.tenant) as connection:
            await connection.execute(
                sql("builds.leave_part"), *self._key(part.task.scope_id), part.part, part.task.attempt
            )

    async def counted(self, scope_id: int) -> tuple[Counter[str], int]:
        """Return the summed counts of a scope's parts that are done, and the number of its parts that are not."""
        async with self._database.read(self._build.tenant) as connection:
            rows = await connection.fetch(sql("builds.part_counts"), *self._key(scope_id))
        total: Counter[str] = Counter()
        for row in rows:
            if row["counts"] is not None:
                total.update(orjson.loads(row["counts"]))
        return total, sum(row["counts"] is None for row in rows)

    async def results(self, scope_id: int) -> list[tuple[int, list[bytes]]]:
        """Return the numbers of a scope's parts that are done, in order, each with the top renderings of its units."""
        async with self._database.read(self._build.tenant) as connection:
            rows = await connection.fetch(sql("builds.part_results"), *self._key(scope_id))
        return [(row["part"], row["result"]) for row in rows]

    def _key(self, scope_id: int) -> tuple[str, str, int]:
        return self._build.tenant, self._build.build_id, scope_id


def _position(row: asyncpg.Record, name: str) -> tuple[int, int] | None:
    """Return the position (timestamp, event_seq) in the columns `NAME_at` and `NAME_seq`; None where they are null."""
    if row[f"{name}_at"] is None:
        return None
    return to_microseconds(row[f"{name}_at"]), row[f"{name}_seq"]
