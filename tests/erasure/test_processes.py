"""Erasures as programs: killed at any moment and gone on with, and as the documentation prints them for a cluster."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from myria.db.database import Database as Pool
from myria.erasure.model import Receipt, Selection
from myria.erasure.receipts import verify_receipt
from tests.erasure.test_erasure import PHRASE, erasures, failed, said, seeded, traces
from tests.support import builds
from tests.support.counts import share
from tests.support.events import TENANT, append
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database
from tests.support.processes import Spawner

pytestmark = pytest.mark.processes

KILLS = share(20, least=3)
PAGE = Path(__file__).resolve().parents[2] / "docs" / "erasure.md"
PROGRAM = [sys.executable, "-m", "myria_cli.main"]


def environment(dsn: str) -> dict[str, str]:
    return {**os.environ, "MYRIA_POSTGRES_DSN": dsn, "MYRIA_ERASURE_LEASE_S": "2", "MYRIA_SERVICE_LOG_LEVEL": "error"}


@asynccontextmanager
async def held(database: Database) -> AsyncIterator[None]:
    """Let no erasure go on past the withdrawal for the block."""
    connection = await asyncpg.connect(database.dsn)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE myria.refused_keys IN SHARE MODE")
            yield
    finally:
        await connection.close()


async def worker(database: Database) -> str | None:
    """Return who holds an erasure now; a killed process does until its lease ends."""
    query = "SELECT worker FROM myria.erasures WHERE state <> 'done' AND leased_until > clock_timestamp()"
    found: str | None = await builds.value(database, query)
    return found


async def test_killed_again_and_again_it_comes_to_the_same_end(
    database: Database, spawn: Spawner, tmp_path: Path
) -> None:
    """Killed with SIGKILL at random moments of its work and begun again, an erasure ends as one that was not: its
    receipt counts every event once and holds, and nothing of it is anywhere."""
    chosen = random.Random(12)
    await append(database.dsn, [said(1000 + number, key=f"more {number}") for number in range(share(2_000, least=150))])
    await seeded(database)
    async with Pool(database.operator_dsn) as pool:
        count = (await erasures(pool).plan(Selection(query=PHRASE))).counts["events"]
    arguments = ["--query", PHRASE, "--reason", "request 17", "--yes"]
    file = tmp_path / "receipt.json"
    kills = 0
    killed: str | None = None
    while True:
        # In the role of the control plane. The first is held up where it empties the log, so it dies there on a machine
        # of any speed.
        erasing = spawn.myria("erase", *arguments, "--receipt", file, env=environment(database.operator_dsn))
        async with held(database) if not kills else nullcontext():
            async with asyncio.timeout(PATIENCE_S):
                while erasing.process.poll() is None and await worker(database) in (None, killed):
                    await asyncio.sleep(0.02)
            if kills < KILLS:
                try:
                    await asyncio.to_thread(erasing.process.wait, chosen.uniform(0.0, 0.15))
                except subprocess.TimeoutExpired:
                    erasing.kill()
        status = await asyncio.to_thread(erasing.wait, 4 * PATIENCE_S)
        if status == 0:
            break
        assert status == -signal.SIGKILL
        kills += 1
        killed = await worker(database)
        arguments = ["--resume", await builds.value(database, "SELECT erasure_id FROM myria.erasures")]
    assert kills
    print(f"killed {kills} times of {KILLS}")
    receipt = Receipt.of(json.loads(file.read_bytes()))
    assert receipt.content["rows"]["events"] == count
    async with Pool(database.operator_dsn) as pool:
        assert (await verify_receipt(pool, TENANT, receipt)).problems == ()
    assert await traces(database.dsn) == []
    assert await failed(database.dsn) == {}


def printed() -> list[str]:
    """Return the commands of the section about clusters."""
    section = PAGE.read_text(encoding="utf-8").partition("## In a cluster")[2].partition("\n## ")[0]
    block = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert block is not None
    return block[1].splitlines()


def in_shell(command: str, folder: Path, dsn: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["/bin/sh", "-c", command], cwd=folder, env=environment(dsn), capture_output=True, check=False
    )


async def test_the_commands_for_a_cluster_work_with_the_operators_login(database: Database, tmp_path: Path) -> None:
    """Each line of the page, run where kubectl would run it: with the login of the operator and a read-only disk."""
    alone = [said(number, "a secret of hers", participants=("eva",)) for number in range(3)]
    await append(database.dsn, [*alone, said(9, "shared", participants=("ben", "eva"))])
    results = []
    for line in printed():
        inside = line.partition(" -- ")[2]
        assert line.startswith("kubectl -n myria exec ")
        assert inside.startswith("myria ")
        command = inside.replace("myria ", f"{shlex.join(PROGRAM)} ", 1)
        done = await asyncio.to_thread(in_shell, command, tmp_path, database.operator_dsn)
        assert done.returncode == 0, (line, done.stderr.decode())
        results.append(done.stdout.decode() + done.stderr.decode())
    receipt: dict[str, Any] = json.loads((tmp_path / "receipt.json").read_bytes())
    assert receipt["receipt"]["rows"]["events"] == 3
    assert receipt["receipt"]["selected"]["shared_events"] == {"kept": 1}
    assert "done" in results[3]
    assert "VACUUM went through" in results[4]
