"""The drills of docs/backup.md and docs/upgrade.md, as a person runs them, and that they would notice a loss."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest

from scripts.drill_backup import back_up
from scripts.drill_upgrade import NO_HISTORY
from scripts.drilling import Drill, table_digests
from tests.support.events import append, conversation
from tests.support.postgres import Database
from tests.support.processes import Spawner
from tests.support.skips import not_here

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def test_a_memory_survives_the_loss_of_its_server(spawn: Spawner) -> None:
    """Dumped and restored on another server, everything is as it was, to the byte, and goes on from there."""
    drill = spawn.python(SCRIPTS / "drill_backup.py")
    assert drill.wait(300) == 0, drill.output()
    told = drill.output()
    assert "renewed the transaction numbers of 273 events" in told
    assert "same     answers, to the byte" in told
    assert "same     node and rendering of every topic" in told


def test_a_memory_is_upgraded_while_it_serves(spawn: Spawner) -> None:
    """The release before goes on serving and taking appends; nothing is lost, every answer stays the same."""
    drill = spawn.python(SCRIPTS / "drill_upgrade.py")
    status = drill.wait(300)
    if status == NO_HISTORY:
        not_here("git's history does not reach back to the schema before")
    assert status == 0, drill.output()
    assert "same     appends that failed (0)" in drill.output()


def test_a_dump_of_ones_own_is_examined(spawn: Spawner, database: Database, tmp_path: Path) -> None:
    """`drill_backup.py --dump` restores it on a throw-away server, verifies it, and says what is in it."""

    async def fill() -> None:
        await append(database.dsn, conversation(30))

    asyncio.run(fill())
    back_up(database.dsn, tmp_path / "mine.dump")
    drill = spawn.python(SCRIPTS / "drill_backup.py", "--dump", tmp_path / "mine.dump")
    assert drill.wait(300) == 0, drill.output()
    assert "default: 30 events" in drill.output()


async def test_a_drill_notices_a_difference(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    """One changed character of one event is told, and the drill fails."""
    await append(database.dsn, conversation(30))
    before = await table_digests(database.dsn)
    connection = await asyncpg.connect(database.superuser_dsn)
    await connection.execute(
        "UPDATE myria.events SET channel = 'tes-' WHERE event_seq = (SELECT max(event_seq) FROM myria.events)"
    )
    await connection.close()
    drill = Drill()
    drill.same("tables", before, await table_digests(database.dsn))
    assert drill.result() == 1
    assert "DIFFERS  tables: events" in capsys.readouterr().out
