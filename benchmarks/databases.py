"""Databases with a known number of generated events, and builds of them, measured from request to end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from benchmarks.cluster import TENANT, statement
from benchmarks.options import Bench
from benchmarks.processes import MYRIA, Ran, run_command
from benchmarks.workload import lines
from myria.db.database import Database
from myria.db.queries import sql
from myria.log.ids import new_id
from myria_cli import console


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What a build took: its own seconds from cutoff to end, the command's usage, and the rows that it wrote."""

    snapshot_id: str
    seconds: float
    ran: Ran
    rows: float


async def load(bench: Bench, name: str, events: Iterable[bytes]) -> None:
    """Import lines by `myria import`."""
    file = bench.work_dir / "import.jsonl"
    file.write_bytes(b"".join(events))
    # large logs of one scope reach beyond now: all of their events are to be imported
    env = {"MYRIA_POSTGRES_DSN": bench.cluster.dsns(name).owner, "MYRIA_INGEST_FUTURE_LIMIT_S": "0"}
    await run_command([*MYRIA, "import", str(file)], env=env, log=bench.log(name))


async def loaded(bench: Bench, n: int, *, sets: int = 0) -> str:
    """Return the name of the database with n generated events and no snapshot: all of it is the fresh tail."""
    name = f"bench_{n}_in_{sets or 'many'}"
    if name not in bench.cluster.ready:
        console.say(f"loading {n:,} events ...", "dim")
        await bench.cluster.create(name)
        began = time.monotonic()
        await load(bench, name, islice(lines(n, sets), n))
        notes = {"import s": time.monotonic() - began, "log MiB": await _mib(bench, name)}
        await bench.cluster.tidy(name)
        bench.cluster.ready[name] = notes
    return name


async def built(bench: Bench, n: int, *, sets: int = 0) -> str:
    """Return the name of the database with n generated events, all of them in its active snapshot."""
    log = await loaded(bench, n, sets=sets)
    name = f"{log}_built"
    if name not in bench.cluster.ready:
        console.say(f"building {n:,} events in full ...", "dim")
        await bench.cluster.clone(log, name)
        took = await build(bench, name, full=True)
        bench.cluster.ready[name] = {
            **bench.cluster.ready[log],
            "build s": took.ran.seconds,
            "CPU s": took.ran.cpu_s,
            "builder MiB": took.ran.peak_mib,
            "with index MiB": await _mib(bench, name),
        }
        await bench.cluster.tidy(name)
    return name


async def build(bench: Bench, name: str, *, full: bool = False) -> Built:
    """Queue a build and see it through by `myria build`.

    Raises:
        RuntimeError: it did not succeed.
    """
    dsns, build_id = bench.cluster.dsns(name), new_id("bld")
    async with Database(dsns.operator) as database:
        async with database.write(TENANT) as connection:
            await connection.execute(sql("builds.ensure_tenant"), TENANT)
            asked = (TENANT, build_id, "manual", full, False, "benchmark", None)
            await connection.fetchval(sql("builds.enqueue"), *asked)
            if full:
                await connection.execute(statement("force"), TENANT, build_id)
        before = await _rows_written(bench, name)
        command = [*MYRIA, "build", "--tenant", TENANT, "--build", build_id]
        ran = await run_command(command, env={"MYRIA_POSTGRES_DSN": dsns.builder}, log=bench.log(name))
        async with database.read(TENANT) as connection:
            row = await connection.fetchrow(sql("builds.get"), TENANT, build_id)
    if row is None or row["status"] != "succeeded":
        raise RuntimeError(f"the build ended otherwise: {dict(row) if row else None}; see {bench.log(name)}")
    seconds = (row["finished_at"] - row["started_at"]).total_seconds()
    rows = await _rows_written(bench, name) - before
    return Built(snapshot_id=row["snapshot_id"], seconds=seconds, ran=ran, rows=rows)


async def _rows_written(bench: Bench, name: str) -> float:
    async with bench.cluster.connection(name) as connection:
        # Backends report their counts when they idle for a second, or before they are gone.
        for _ in range(60):
            if not await connection.fetchval(statement("others_connected")):
                break
            await asyncio.sleep(0.05)
        return float(await connection.fetchval(statement("rows_written")))


async def _mib(bench: Bench, name: str) -> float:
    async with bench.cluster.connection(name) as connection:
        return float(await connection.fetchval(statement("database_bytes"))) / 2**20
