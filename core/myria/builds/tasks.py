"""Claiming, leasing and finishing the tasks of a build.

A task's attempt is its fencing token. A worker that lost its lease finds another attempt in the row, so that its last
statement, the only one that makes its work reachable, changes nothing.
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
"""How often a task may raise an unexpected error before its build fails; a lost worker does not count."""


_own_workers: set[str] = set()
"""Names of the workers in this process."""


@contextmanager
def worker() -> Iterator[str]:
    """Name a worker for the block: its host, its process id, and a nonce, joined by colons."""
    name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
    _own_workers.add(name)
    try:
        yield name
    finally:
        _own_workers.discard(name)


async def drop_leases_of_the_dead(database: Database, build: RunningBuild, name: str) -> None:
    """Release the tasks and parts of workers that ran on this host and have ended; other leases run to their end.

    `name` is the calling worker. It counts as dead too: it starts, or starts again after an outage, and works on no
    task yet.
    """
    async with database.read(build.tenant) as connection:
        rows = await connection.fetch(sql("builds.workers"), build.tenant, build.build_id)
    dead_workers = [row["worker"] for row in rows if row["worker"] == name or _is_dead(row["worker"])]
    if dead_workers:
        async with database.write(build.tenant) as connection:
            await connection.execute(sql("builds.drop_leases_of"), build.tenant, build.build_id, dead_workers)
            await connection.execute(sql("builds.drop_parts_leased_by"), build.tenant, build.build_id, dead_workers)


async def let_go(database: Database, build: RunningBuild, name: str) -> None:
    """Give back the task and parts of a worker that must stop; best effort, as its leases end anyway."""
    try:
        async with database.write(build.tenant) as connection:
            await connection.execute(sql("builds.drop_leases_of"), build.tenant, build.build_id, [name])
            await connection.execute(sql("builds.drop_parts_leased_by"), build.tenant, build.build_id, [name])
    except errors.MyriaError as error:
        logger.info("a lease was not given back: %s", error.message, extra={"action": "lease_kept"})


async def claim(database: Database, build: RunningBuild, name: str, lease_s: float) -> Task | None:
    """Claim the next free task under a lease of `lease_s` seconds and return it; None when none is free now."""
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
    """Renew a task's lease and store its counts; return False when the task is no longer this worker's."""
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
    """Commit a task: write its root row, which makes its nodes reachable, and mark it done.

    `degraded_reason` says why units were planned without the model that was asked for; None where none were.

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
    """Store a task's error and release the task for the next worker; fail it after `MAX_FAILURES` errors.

    A plan that breaks a rule fails it at once, as the next worker would plan the same.
    """
    failures = task.failures + 1
    error_json = (
        error.to_json() if isinstance(error, errors.MyriaError) else errors.InternalError(repr(error)).to_json()
    )
    is_final = isinstance(error, errors.BuildInvalid) or failures >= MAX_FAILURES
    statement = "builds.fail_task" if is_final else "builds.release_task"
    await _store_error(database, build, task, {**error_json, "failures": failures}, statement)


async def give_up(database: Database, build: RunningBuild, task: Task) -> None:
    """Fail a task that was claimed too often without ever ending: it seems to kill its workers."""
    error = errors.InternalError(
        f"the task of scope {task.scope_id} was taken up {task.attempt - 1} times and never ended"
    )
    await _store_error(database, build, task, {**error.to_json(), "failures": task.failures}, "builds.fail_task")


async def _store_error(
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
    """Tell whether a worker ran on this host and has ended.

    Its process id is free, or is this process's own without the worker being one of its workers: in each new container
    of a pod, process ids start at 1 again.
    """
    host, _, rest = name.partition(":")
    pid, _, _ = rest.partition(":")
    if host != socket.gethostname() or not pid.isdigit():
        return False
    if int(pid) == os.getpid():
        return name not in _own_workers
    try:
        os.kill(int(pid), 0)  # signal 0 only asks whether the process exists
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
