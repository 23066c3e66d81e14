"""Bad days of the database: away, hung, restarted, exhausted, of another version, out of room."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from myria.memory import Memory
from myria.search.queries import EventNodesQuery
from myria.settings import McpSettings, PostgresSettings, Settings
from myria_embedded import EmbeddedPostgres
from tests.reads.asking import ANA_BEN, ask, ids_of
from tests.reads.conftest import OwnPostgres, children, migrated
from tests.server.wire import Served, serving
from tests.support.events import TENANT, event
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database, Databases
from tests.support.skips import not_here

pytestmark = pytest.mark.processes

ASKED = EventNodesQuery(participants=ANA_BEN, limit=200)
WIRE_EVENT = {
    "timestamp": "2026-03-19T20:00:00Z",
    "channel": "test",
    "participants": list(ANA_BEN),
    "payload": {"text": "hello"},
}
WIRE_ASKED = {"participants": list(ANA_BEN)}
IMPATIENT = replace(
    Settings(),
    mcp=McpSettings(append_deadline_s=1.0, request_deadline_s=1.0, ready_grace_s=0),
    postgres=PostgresSettings(pool_size=2, connect_timeout_s=0.5),
)
PATIENT = replace(Settings(), mcp=McpSettings(append_deadline_s=600, request_deadline_s=600, ready_grace_s=0))


async def _refused(served: Served, *, codes: set[str]) -> None:
    """Check that an append and a read are refused as retryable, by one of these codes."""
    for tool, arguments in (
        ("append_event", WIRE_EVENT | {"source_event_key": "refused"}),
        ("query_event_nodes", WIRE_ASKED),
        ("get_snapshot_status", {}),
    ):
        async with asyncio.timeout(PATIENCE_S):  # without a deadline it would wait for as long as the outage lasts
            answer = await served.call(tool, arguments)
        assert answer.code in codes, (tool, answer)
        assert answer.content["error"]["retryable"]
        assert answer.content["error"]["message"]


async def _recovers(served: Served) -> None:
    """Check that appends and reads work again within seconds, without anybody's doing."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        appended = await served.call("append_event", WIRE_EVENT | {"source_event_key": "refused"})
        read = await served.call("query_event_nodes", WIRE_ASKED)
        if not appended.is_error and not read.is_error:
            break
        assert time.monotonic() < deadline, (appended, read)
        await asyncio.sleep(0.05)
    shown = read.content["root"]["children"]
    assert [one["source_event_key"] for one in shown].count("refused") == 1


async def _works(served: Served) -> None:
    """Return once an append has been acknowledged and the server calls itself ready: its connections are made."""
    async with asyncio.timeout(PATIENCE_S):
        while (await served.call("append_event", WIRE_EVENT | {"source_event_key": "first"})).is_error:
            await asyncio.sleep(0.05)
        while (await served.client.get("/readyz")).status_code != 200:
            await asyncio.sleep(0.05)


@asynccontextmanager
async def _served(dsn: str, settings: Settings = IMPATIENT) -> AsyncIterator[Served]:
    async with Memory(dsn, settings) as memory, serving(memory, settings) as one:
        yield one


async def test_a_database_that_is_away(own_postgres: OwnPostgres) -> None:
    """Killed: appends and reads fail as retryable within the deadline, /healthz stays, and all of it comes back."""
    async with _served(own_postgres.dsns.server) as served:
        await _works(served)
        await own_postgres.kill()
        await _refused(served, codes={"database_unavailable", "deadline_exceeded"})
        assert (await served.client.get("/healthz")).status_code == 200
        unready = await served.client.get("/readyz")
        assert (unready.status_code, unready.json()["error"]["code"]) == (503, "database_unavailable")
        await own_postgres.start()
        await _recovers(served)
        await _works(served)


async def test_a_database_that_was_never_there(own_postgres: OwnPostgres) -> None:
    """A server that starts before its database answers retryable errors, then works."""
    await own_postgres.kill()
    async with _served(own_postgres.dsns.server) as served:
        await _refused(served, codes={"database_unavailable", "deadline_exceeded"})
        await own_postgres.start()
        await _recovers(served)


async def test_a_database_that_hangs(own_postgres: OwnPostgres) -> None:
    """Stopped dead with connections open: every call ends at its deadline, and none is stuck afterwards."""
    pid = own_postgres.server.pid
    assert pid is not None
    async with _served(own_postgres.dsns.server) as served:
        await _works(served)
        stopped = [pid, *children(pid)]
        for one in stopped:
            os.kill(one, signal.SIGSTOP)
        try:
            for _ in range(2):
                await _refused(served, codes={"database_unavailable", "deadline_exceeded"})
        finally:
            for one in stopped:
                with suppress(ProcessLookupError):
                    os.kill(one, signal.SIGCONT)
        await _recovers(served)


@pytest.mark.parametrize("how", ["restart", "crash"])
async def test_a_database_that_restarts_between_appends(own_postgres: OwnPostgres, how: str) -> None:
    """Appends under way through a restart or a crash are acknowledged after it, each stored once, keyed or not."""
    acknowledged: list[str] = []
    stop = asyncio.Event()

    async def client(memory: Memory, number: int) -> None:
        count = 0
        while not stop.is_set():
            count += 1
            key = f"{number}-{count}" if number % 2 else None
            (result,) = await memory.log.append_events(TENANT, [event(count, "text", key=key)])
            assert not result.deduplicated
            acknowledged.append(result.event_id)

    async def acknowledges(more: int) -> None:
        wanted = len(acknowledged) + more
        async with asyncio.timeout(600):
            while len(acknowledged) < wanted:
                for ended in filter(asyncio.Task.done, clients):
                    ended.result()  # none ends before it is told to: this raises
                await asyncio.sleep(0.02)

    async with Memory(own_postgres.dsns.server, PATIENT) as memory:
        clients = [asyncio.create_task(client(memory, number)) for number in range(6)]
        for _ in range(2):
            await acknowledges(20)
            await (own_postgres.stop() if how == "restart" else own_postgres.kill())
            await own_postgres.start()
            await acknowledges(50)
        stop.set()
        await asyncio.gather(*clients)

    connection = await asyncpg.connect(own_postgres.dsns.superuser)
    stored = [row[0] for row in await connection.fetch("SELECT event_id FROM myria.events")]
    await connection.close()
    assert sorted(stored) == sorted(acknowledged)
    assert len(set(stored)) == len(stored)


async def test_an_event_appended_after_a_crash_is_read(own_postgres: OwnPostgres) -> None:
    """PostgreSQL gives out transaction ids again that a crash forgot; a server that lives on still sees every event."""
    async with Memory(own_postgres.dsns.server, Settings()) as memory:
        first = event(0, "first", key="first")
        await memory.log.append_events(TENANT, [first])
        await asyncio.sleep(0.5)
        # A repeat takes a transaction id and writes nothing that anybody waits for.
        for _ in range(3):
            (again,) = await memory.log.append_events(TENANT, [first])
            assert again.deduplicated
        assert len(ids_of(await ask(memory, ASKED))) == 1

        await own_postgres.kill()
        await own_postgres.start()
        for number in range(4):
            await memory.log.append_events(TENANT, [event(1 + number, f"after {number}")])
            assert len(ids_of(await ask(memory, ASKED))) == 2 + number


async def test_a_pool_without_a_free_connection(database: Database) -> None:
    """With every connection busy, calls wait no longer than their deadline and may be retried; then they work."""
    async with Memory(database.server_dsn, IMPATIENT) as memory, serving(memory, IMPATIENT) as served:
        await _works(served)
        async with AsyncExitStack() as busy:
            for pool, size in (
                (memory.database, IMPATIENT.postgres.pool_size),
                (memory.appending, IMPATIENT.postgres.append_pool_size),
            ):
                for _ in range(size):
                    await busy.enter_async_context(pool.connection())
            await _refused(served, codes={"database_unavailable", "deadline_exceeded"})
        await _recovers(served)


async def test_a_database_without_a_free_connection(own_postgres: OwnPostgres) -> None:
    """When PostgreSQL takes no more clients, calls fail as retryable, and work once somebody has left."""
    others: list[asyncpg.Connection[Any]] = []
    with suppress(asyncpg.TooManyConnectionsError):
        while True:
            others.append(await asyncpg.connect(own_postgres.dsns.builder))
    async with _served(own_postgres.dsns.server) as served:
        await _refused(served, codes={"database_unavailable", "deadline_exceeded"})
        for other in others:
            await other.close()
        await _recovers(served)


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ("INSERT INTO myria.schema_migrations VALUES (9999, 'future', 'x')", "schema_too_new", "upgrade"),
        (
            "DELETE FROM myria.schema_migrations WHERE version = (SELECT max(version) FROM myria.schema_migrations)",
            "schema_outdated",
            "myria migrate",
        ),
        ("UPDATE myria.schema_migrations SET checksum = 'x'", "configuration_error", "another build"),
        ("DROP SCHEMA myria CASCADE", "schema_outdated", "myria migrate"),
        ("REVOKE ALL ON SCHEMA myria FROM myria_server", "configuration_error", "--print-roles"),
    ],
)
async def test_a_schema_of_another_version(database: Database, change: str, code: str, said: str) -> None:
    """A database of another version is refused by /readyz and by every tool, with what to do; /healthz stays."""
    connection = await asyncpg.connect(database.superuser_dsn)
    await connection.execute(change)
    await connection.close()
    async with _served(database.server_dsn, PATIENT) as served:
        assert (await served.client.get("/healthz")).status_code == 200
        unready = await served.client.get("/readyz")
        assert unready.status_code == 503
        assert unready.json()["error"]["code"] == code
        assert said in unready.json()["error"]["message"]
        for tool, arguments in (
            ("append_event", WIRE_EVENT),
            ("query_references", WIRE_ASKED),
            ("get_active_snapshot", {}),
        ):
            answer = await served.call(tool, arguments)
            assert answer.code == code
            assert not answer.content["error"]["retryable"]


async def test_a_schema_that_arrives_later(databases: Databases) -> None:
    """A server on an empty database works as soon as somebody has migrated it; no restart is needed."""
    empty = databases.create_empty()
    try:
        async with _served(empty.dsn, PATIENT) as served:
            assert (await served.call("append_event", WIRE_EVENT)).code == "schema_outdated"
            from myria.db.schema import migrate

            await migrate(empty.dsn)
            assert (await served.client.get("/readyz")).status_code == 200
            await _recovers(served)
    finally:
        databases.drop(empty)


@pytest.fixture
def small_disk(new_dir: Path) -> Iterator[Path]:
    """A data folder on a disk of 220 MB."""
    if os.geteuid() != 0:
        not_here("making a small file system needs root")
    new_dir.mkdir(mode=0o755)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=220m,mode=755", "tmpfs", str(new_dir)],
        check=False,
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        not_here(f"root may not mount a tmpfs: {mounted.stderr.strip()}")
    try:
        yield new_dir
    finally:
        subprocess.run(["umount", "-l", str(new_dir)], check=True)


async def test_a_full_disk(small_disk: Path) -> None:
    """Out of room: appends say disk_full and store nothing, reads go on; with room again, so do appends."""
    ballast = small_disk / "ballast"
    async with EmbeddedPostgres(small_disk / "db", settings={"autovacuum": "off"}) as server:
        dsns = await migrated(server)
        async with _served(dsns.server, PATIENT) as served:
            stored = await served.call("append_event", WIRE_EVENT)
            assert not stored.is_error
            connection = await asyncpg.connect(dsns.superuser)
            await connection.execute("SELECT pg_switch_wal()")
            await connection.execute("CHECKPOINT")  # the log has a fresh segment: the table is what cannot grow
            await connection.close()
            _fill(ballast, small_disk, leave=300_000)
            bulky = WIRE_EVENT | {"payload": {"text": os.urandom(40_000).hex()}}
            codes = []
            for number in range(40):
                answer = await served.call("append_event", bulky | {"source_event_key": f"bulky {number}"})
                codes.append(answer.code)
                if answer.is_error:
                    break
            assert codes[-1] == "disk_full", codes
            assert answer.content["error"]["retryable"]
            shown = await served.call("query_event_nodes", WIRE_ASKED)
            assert len(shown.content["root"]["children"]) == len(codes)  # the first one, and all but the refused
            asked = {"event_id": stored.content["event_id"], **WIRE_ASKED}
            assert not (await served.call("get_event", asked)).is_error
            ballast.unlink()
            await _recovers(served)


def _fill(ballast: Path, disk: Path, *, leave: int) -> None:
    """Leave so many bytes of a disk free."""
    with ballast.open("wb") as out:
        while (free := os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize) > leave:
            out.write(bytes(min(1 << 20, max(4096, free - leave))))
            out.flush()
