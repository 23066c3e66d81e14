"""Claiming, leasing and finishing the tasks of a build.

A task's attempt is its fencing token: a worker that lost its lease finds another attempt on the row, and its last
statement, which alone makes its work reachable, changes nothing.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import orjson

from myria import errors
from myria.builds.compilation import Compiled
from myria.builds.model import RunningBuild, Task
from myria.db.database import Database
from myria.db.queries import sql

logger = logging.getLogger(__name__)

MAX_FAILURES = 3
"""Times a task's work may raise something unexpected before its build fails; losing a worker does not count."""


_alive: set[str] = set()
"""Workers of this very process."""


@contextmanager
def worker() -> Iterator[str]:
    """Lend a new name for a worker: its host, its process, and a nonce."""
    name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
    _alive.add(name)
    try:
        yield name
    finally:
        _alive.discard(name)


async def drop_leases_of_the_dead(database: Database, build: RunningBuild, name: str) -> None:
    """Release the tasks of workers that ran on this host and are gone; other leases run to their end.

    `name` is the calling worker, which begins, or begins again after an outage, and works on no task yet.
    """
    async with database.read(build.tenant) as connection:
        rows = await connection.fetch(sql("builds.workers"), build.tenant, build.build_id)
    dead = [row["worker"] for row in rows if row["worker"] == name or _is_dead(row["worker"])]
    if dead:
        async with database.write(build.tenant) as connection:
            await connection.execute(sql("builds.drop_leases_of"), build.tenant, build.build_id, dead)
            await connection.execute(sql("builds.drop_parts_leased_by"), build.tenant, build.build_id, dead)


async def let_go(database: Database, build: RunningBuild, name: str) -> None:
    """Give back the task of a worker that was told to stop; best effort, as its lease ends anyway."""
    try:
        async with database.write(build.tenant) as connection:
            await connection.execute(sql("builds.drop_leases_of"), build.tenant, build.build_id, [name])
            await connection.execute(sql("builds.drop_parts_leased_by"), build.tenant, build.build_id, [name])
    except errors.MyriaError as error:
        logger.info("a lease was not given back: %s", error.message, extra={"action": "lease_kept"})


async def claim(database: Database, build: RunningBuild, name: str, lease_s: float) -> Task | None:
    """Take the next free task, or None when there is none now."""
    async with database.write(build.tenant) as connection:
        row = await connection.fetchrow(sql("builds.claim_task"), build.tenant, build.build_id, name, lease_s)
    if row is None:
        return None
    failures = orjson.loads(row["error"])["failures"] if row["error"] is not None else 0
    return Task(
        scope_id=row["scope_id"],
        participants=tuple(row["participants"]),
        attempt=row["attempt"],
        failures=failures,
        eligible=row["eligible"],
        has_plans=row["has_plans"],
    )


async def renew(database: Database, build: RunningBuild, task: Task, counts: Counter[str], lease_s: float) -> bool:
    """Renew a lease and show the progress; False when the task is no longer ours."""
    async with database.write(build.tenant) as connection:
        renewed = await connection.fetchval(
            sql("builds.renew_task"),
            build.tenant,
            build.build_id,
            task.scope_id,
            task.attempt,
            lease_s,
            orjson.dumps(dict(counts)).decode(),
        )
    return renewed is not None


async def finish(
    database: Database,
    build: RunningBuild,
    task: Task,
    compiled: Compiled,
    counts: Counter[str],
    *,
    degraded_reason: str | None = None,
) -> None:
    """Commit a task: its root row, and that it is done.

    `degraded_reason` says why a model did not help as it should.

    Raises:
        LeaseLost: another worker has the task, or the build has ended.
    """
    counts, subjects = Counter(counts), compiled.subjects
    async with database.write(build.tenant, sharing="build") as connection:
        if compiled.changed:
            counts["rows_scope_roots"] = 1
        done = await connection.fetchval(
            sql("builds.finish_task"),
            build.tenant,
            build.build_id,
            task.scope_id,
            task.attempt,
            compiled.root,
            orjson.dumps(dict(counts)).decode(),
            degraded_reason,
            build.number,
            compiled.changed,
            compiled.blocks,
            subjects is not None,
            None if subjects is None else subjects.root,
            None if subjects is None else subjects.since,
            sorted(compiled.degraded),
        )
        if done is None:
            raise errors.LeaseLost(
                f"the task of scope {task.scope_id} is no longer this worker's", scope_id=task.scope_id
            )
        if compiled.was_shared:
            await connection.execute(sql("builds.drop_parts"), build.tenant, build.build_id, task.scope_id)


async def give_back(database: Database, build: RunningBuild, task: Task, error: BaseException) -> None:
    """Note what went wrong and let the next worker try, or fail the task after too many times."""
    failures = task.failures + 1
    raised = error.to_json() if isinstance(error, errors.MyriaError) else errors.InternalError(repr(error)).to_json()
    final = isinstance(error, errors.BuildInvalid) or failures >= MAX_FAILURES
    statement = "builds.fail_task" if final else "builds.release_task"
    await _settle(database, build, task, {**raised, "failures": failures}, statement)


async def give_up(database: Database, build: RunningBuild, task: Task) -> None:
    """Fail a task that was taken up too often without ever ending: something in it kills its workers."""
    error = errors.InternalError(
        f"the task of scope {task.scope_id} was taken up {task.attempt - 1} times and never ended"
    )
    await _settle(database, build, task, {**error.to_json(), "failures": task.failures}, "builds.fail_task")


async def _settle(
    database: Database, build: RunningBuild, task: Task, error: dict[str, object], statement: str
) -> None:
    async with database.write(build.tenant) as connection:
        await connection.execute(
            sql(statement),
            build.tenant,
            build.build_id,
            task.scope_id,
            task.attempt,
            orjson.dumps(error).decode(),
        )


def _is_dead(name: str) -> bool:
    """Whether a worker of this host has ended: its process id is free, or now ours (pods number processes from 1)."""
    host, _, rest = name.partition(":")
    pid, _, _ = rest.partition(":")
    if host != socket.gethostname() or not pid.isdigit():
        return False
    if int(pid) == os.getpid():
        return name not in _alive
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
