"""One build from request to end, by builder processes of their own, and what it took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from benchmarks.processes import MYRIA, run_command
from benchmarks.statements import statement
from myria.db.database import Database
from myria.db.queries import sql
from myria.log.ids import new_id
from myria_embedded import RoleDsns

TENANT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What a build took.

    `seconds` is the build's own time, from its cutoff to its end; `process_seconds` that of the process, whose start
    it includes. `counts` are the build's own.
    """

    seconds: float
    process_seconds: float
    cpu_s: float
    peak_mib: float
    counts: dict[str, int]
    snapshot_id: str


async def build(
    dsns: RoleDsns,
    log: Path,
    *,
    full: bool = False,
    hold: bool = False,
    processes: int = 1,
    settings: Mapping[str, str] | None = None,
) -> Built:
    """Queue a build and see it through, by one command with so many processes; `cpu_s` is that of its first one.

    Args:
        dsns: the database.
        log: what the builder writes goes there.
        full: plan everything anew.
        hold: hold the snapshot.
        processes: builder processes.
        settings: by environment variable without `MYRIA_`.

    Raises:
        RuntimeError: it did not succeed.
    """
    build_id = new_id("bld")
    async with Database(dsns.operator) as database:
        async with database.write(TENANT) as connection:
            await connection.execute(sql("builds.ensure_tenant"), TENANT)
            taken = await connection.fetchval(
                sql("builds.enqueue"), TENANT, build_id, "manual", full, hold, "benchmark", None
            )
            if taken is not None and full:
                await connection.execute(statement("force"), TENANT, build_id)
        if taken is None:
            raise RuntimeError("another build of this database is not finished; drop the work folder's databases")
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [*MYRIA, "build", "--tenant", TENANT, "--build", build_id, "--processes", str(processes)]
        env = {"MYRIA_POSTGRES_DSN": dsns.builder}
        env |= {f"MYRIA_{name}": value for name, value in (settings or {}).items()}
        ended = await run_command(command, env=env, log=log)
        async with database.read(TENANT) as connection:
            row = await connection.fetchrow(sql("builds.get"), TENANT, build_id)
    if row is None or row["status"] not in {"succeeded", "held", "nothing_to_do"}:
        raise RuntimeError(f"the build ended otherwise: {dict(row) if row else None}; see {log}")
    counts: dict[str, Any] = orjson.loads(row["counts"])
    return Built(
        seconds=(row["finished_at"] - row["started_at"]).total_seconds(),
        process_seconds=ended.seconds,
        cpu_s=ended.cpu_s,
        peak_mib=ended.peak_mib,
        counts=counts,
        snapshot_id=row["snapshot_id"],
    )
