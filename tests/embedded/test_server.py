"""One data directory, one server: found, started, shared, stopped."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest

from myria.db import schema
from myria.errors import DataDirInUse
from myria_embedded import EmbeddedPostgres, default_data_dir, ensure_roles, grant_roles
from myria_embedded.endpoint import Postmaster, is_free
from myria_embedded.processes import remains, title
from tests.support.patience import PATIENCE_S
from tests.support.processes import Spawned, wait_until

pytestmark = pytest.mark.processes

Hold = Callable[..., Spawned]

POLICIES = """
SELECT string_agg(concat_ws(' ', tablename, policyname, permissive, roles, cmd, qual, with_check), E'\n'
                  ORDER BY tablename, policyname)
FROM pg_policies WHERE schemaname = 'myria'
"""


def make(data_dir: Path, **options: object) -> EmbeddedPostgres:
    """A server whose data nobody will miss."""
    return EmbeddedPostgres(data_dir, settings={"fsync": "off"}, **options)  # type: ignore[arg-type]


async def ask(dsn: str, question: str) -> object:
    """Return the one value that a query gives."""
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(question)
    finally:
        await connection.close()


async def until_back(server: EmbeddedPostgres, killed: int) -> None:
    """Wait until another postmaster than the killed one accepts connections."""
    async with asyncio.timeout(PATIENCE_S):
        while server.pid in {None, killed}:
            await asyncio.sleep(0.02)
        await server.wait_ready()


def mode(path: Path) -> int:
    """Permission bits of a file or folder."""
    return stat.S_IMODE(path.stat().st_mode)


def test_the_default_folder_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a data directory the server lives in the user's data folder."""
    monkeypatch.setenv("XDG_DATA_HOME", "/home/somebody/.local/share")
    assert EmbeddedPostgres().data_dir == default_data_dir()
    assert default_data_dir().name == "myria"


async def test_starts_from_nothing_and_stops_without_trace(new_dir: Path) -> None:
    """A server is created and started, tells what it does, and is gone after the block with its socket folder."""
    steps: list[str] = []
    async with make(new_dir, progress=steps.append) as server:
        pid, sockets = server.pid, Path(str(server._socket_folder))
        assert await ask(server.dsn, "SELECT current_user || current_setting('TimeZone')") == "postgresUTC"
        assert pid is not None
        assert title(pid) is not None
        assert mode(sockets) == 0o700
    assert steps == ["find PostgreSQL", "create the database", "start PostgreSQL"]
    assert title(pid) is None
    assert remains(new_dir / "postgres") == []
    assert sockets.name not in os.listdir(sockets.parent)


async def test_a_second_start_keeps_data_and_port(data_dir: Path) -> None:
    """What was committed is there after a restart, on the same port."""
    async with make(data_dir) as server:
        port = server.port
        await ask(server.dsn, "CREATE TABLE kept AS SELECT 7 AS n")
    async with make(data_dir) as server:
        assert server.port == port
        assert await ask(server.dsn, "SELECT n FROM kept") == 7


async def test_nobody_gets_in_without_the_password(new_dir: Path) -> None:
    """Socket and loopback ask for a password, nothing else is listened to, and the password file is private."""
    async with make(new_dir) as server:
        for tcp in (False, True):
            with pytest.raises(asyncpg.InvalidPasswordError):
                await asyncpg.connect(server.dsn_as("postgres", "wrong", database="postgres", tcp=tcp))
            assert await ask(server.superuser_dsn("postgres", tcp=tcp), "SELECT 1") == 1
        methods = "SELECT string_agg(DISTINCT auth_method, ',') FROM pg_hba_file_rules"
        assert await ask(server.dsn, methods) == "scram-sha-256"
        assert await ask(server.dsn, "SELECT current_setting('listen_addresses')") == "127.0.0.1"
        assert mode(new_dir / "passwords.json") == 0o600
        assert mode(new_dir) == 0o700


async def test_a_deep_folder_with_odd_characters_works(new_dir: Path) -> None:
    """The socket's path stays short however long the data directory's is."""
    deep = new_dir / ("d" * 120) / "a b,'c\"é%" / ("e" * 80)
    async with make(deep) as server:
        assert len(f"{server._socket_folder}/.s.PGSQL.{server.port}") < 107
        assert await ask(server.dsn, "SELECT 1") == 1


async def test_sorts_by_code_point_everywhere(data_dir: Path) -> None:
    """The database's order does not depend on the machine's locale."""
    async with make(data_dir) as server:
        order = "SELECT string_agg(w, '' ORDER BY w) FROM unnest(ARRAY['b','B','ä','a','Z']) AS w"
        assert await ask(server.dsn, order) == "BZabä"
        assert await ask(server.dsn, "SELECT upper('ä')") == "Ä"


async def test_a_running_server_is_joined_and_left_alone(data_dir: Path) -> None:
    """A second user joins the running server and leaves it running when it goes."""
    async with make(data_dir) as first:
        async with make(data_dir) as second:
            assert second.pid == first.pid
            assert await ask(second.dsn, "SELECT 1") == 1
        assert await ask(first.dsn, "SELECT 1") == 1
    assert remains(data_dir / "postgres") == []


async def test_a_server_whose_socket_was_cleared_away_is_joined_over_tcp(data_dir: Path) -> None:
    """Temporary folders get cleared: the server is still found, used and stopped."""
    async with make(data_dir) as first:
        shutil.rmtree(str(first._socket_folder))
        async with make(data_dir) as second:
            assert second.pid == first.pid
            assert await ask(second.dsn, "SELECT 1") == 1
    assert remains(data_dir / "postgres") == []


async def test_the_last_user_stops_a_shared_server(data_dir: Path) -> None:
    """Who started the server leaves it to those who still use it; the last of them stops it."""
    first, second = make(data_dir), make(data_dir)
    await first.start()
    await second.start()
    await first.stop()
    assert await ask(second.dsn, "SELECT 1") == 1
    await second.stop()
    assert remains(data_dir / "postgres") == []


def test_two_processes_starting_at_once_share_one_server(new_dir: Path, hold: Hold) -> None:
    """Of two that find nothing one creates and starts, the other waits and joins."""
    holders = [hold(new_dir), hold(new_dir), hold(new_dir)]
    assert len({one.wait_for(r"^ready (\d+)")[1] for one in holders}) == 1
    assert sum("step create" in one.output() for one in holders) == 1
    for one in holders:
        one.signal(signal.SIGTERM)
        assert one.wait() == 0
    assert remains(new_dir / "postgres") == []


async def test_a_second_owner_is_refused_with_the_firsts_pid(data_dir: Path, hold: Hold) -> None:
    """Two `up` on one data directory: the second learns which process to stop; other commands may join."""
    owner = hold(data_dir, "exclusive")
    pid = int(owner.wait_for(r"^ready (\d+)")[1])
    with pytest.raises(DataDirInUse) as refused:
        await make(data_dir, exclusive=True).start()
    assert refused.value.details["pid"] == owner.pid
    assert str(owner.pid) in refused.value.message
    async with make(data_dir) as joined:
        assert joined.pid == pid


async def test_an_owner_stops_the_server_whoever_uses_it(data_dir: Path) -> None:
    """When `up` ends, so does the server, even while another command is connected."""
    owner, guest = make(data_dir, exclusive=True), make(data_dir)
    await guest.start()
    await owner.start()
    connection = await asyncpg.connect(guest.dsn)
    await owner.stop()
    assert remains(data_dir / "postgres") == []
    connection.terminate()
    await guest.stop()


async def test_an_owner_takes_over_the_server_of_a_killed_one(data_dir: Path, hold: Hold) -> None:
    """After kill -9 of `up` the next one joins the orphaned server, and stops it when it ends."""
    killed = hold(data_dir, "exclusive")
    pid = int(killed.wait_for(r"^ready (\d+)")[1])
    killed.kill()
    async with make(data_dir, exclusive=True) as server:
        assert server.pid == pid
    assert remains(data_dir / "postgres") == []


@pytest.mark.parametrize("flag", ["exclusive", "supervise"])
def test_ctrl_c_stops_what_was_started(data_dir: Path, hold: Hold, flag: str) -> None:
    """Ctrl-C, which a terminal sends to the whole process group, ends the server in good order."""
    holder = hold(data_dir, flag)
    holder.wait_for("^ready")
    os.killpg(holder.pid, signal.SIGINT)
    assert holder.wait() == 0
    assert "left" in holder.output()
    assert remains(data_dir / "postgres") == []
    assert not (data_dir / "postgres" / "postmaster.pid").exists()


async def test_ctrl_c_while_starting_leaves_nothing(new_dir: Path, hold: Hold) -> None:
    """Interrupted at any step of the first start, no process is left, and the next start works."""
    for step in ("step find", "step create", "step start"):
        holder = hold(new_dir)
        holder.wait_for(f"{step}|^ready")  # an earlier round may have got so far
        holder.signal(signal.SIGINT)
        holder.wait()
        if (new_dir / "postgres").exists():
            assert remains(new_dir / "postgres") == []
    async with make(new_dir) as server:
        assert await ask(server.dsn, "SELECT 1") == 1


async def test_a_server_started_by_hand_is_left_running(data_dir: Path, hold: Hold) -> None:
    """A server that Myria did not start is joined, and not stopped by the last to leave."""
    holder = hold(data_dir)
    holder.wait_for("^ready")
    (data_dir / "managed").unlink()
    async with make(data_dir) as joined:
        pid = joined.pid
    holder.kill()
    async with make(data_dir) as joined:
        assert joined.pid == pid
    assert pid is not None
    assert title(pid) is not None


async def test_supervisor_brings_a_killed_server_back(data_dir: Path) -> None:
    """After kill -9 of the postmaster the same connection string works again, and nothing committed is lost."""
    async with make(data_dir, exclusive=True) as server:
        supervisor = asyncio.create_task(server.supervise())
        await ask(server.dsn, "CREATE TABLE kept AS SELECT 7 AS n")
        for _ in range(3):
            dsn, pid = server.dsn, server.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            await until_back(server, pid)
            assert server.dsn == dsn
            assert await ask(dsn, "SELECT n FROM kept") == 7
            assert await ask(server.superuser_dsn("postgres", tcp=True), "SELECT n FROM kept") == 7
        await server.stop()
        await asyncio.wait_for(supervisor, PATIENCE_S)


async def test_a_restart_survives_the_loss_of_its_port(data_dir: Path) -> None:
    """When another program took the port meanwhile, the Unix socket's connection string still works."""
    async with make(data_dir, exclusive=True) as server:
        dsn, port, pid = server.dsn, server.port, server.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: is_free(port))
        thief = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port)
        async with thief:
            supervisor = asyncio.create_task(server.supervise())
            await until_back(server, pid)
            assert await ask(dsn, "SELECT 1") == 1
            supervisor.cancel()


async def test_a_busy_port_is_exchanged_at_the_next_start(data_dir: Path) -> None:
    """A fresh start does not insist on the last port."""
    async with make(data_dir) as server:
        port = server.port
    async with (
        await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port),
        make(data_dir) as server,
    ):
        assert server.port != port
        assert await ask(server.superuser_dsn("postgres", tcp=True), "SELECT 1") == 1


async def test_starts_after_everything_was_killed(data_dir: Path, hold: Hold) -> None:
    """After kill -9 of us and of the postmaster, a backend too busy to notice does not keep the next start off."""
    holder = hold(data_dir)
    found = holder.wait_for(r"^ready (\d+) (\S+)")
    connection = await asyncpg.connect(found[2])
    await connection.execute("CREATE TABLE kept AS SELECT 7 AS n")
    busy = asyncio.create_task(connection.execute("DO $$ BEGIN LOOP PERFORM 1; END LOOP; END $$"))
    watching = await asyncpg.connect(found[2])
    running = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'DO %'"
    async with asyncio.timeout(PATIENCE_S):
        while not await watching.fetchval(running):
            await asyncio.sleep(0.01)
    await watching.close()
    holder.kill()
    os.kill(int(found[1]), signal.SIGKILL)
    wait_until(lambda: Postmaster.of(data_dir / "postgres") is None)
    assert remains(data_dir / "postgres")
    async with make(data_dir) as server:
        assert await ask(server.dsn, "SELECT n FROM kept") == 7
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await busy


async def test_a_stale_pid_file_that_names_a_living_stranger_is_no_server(data_dir: Path) -> None:
    """Process ids are reused: a pid file left by a power cut may name any process, this one for example."""
    async with make(data_dir) as server:
        cluster = server.cluster
        text = (cluster / "postmaster.pid").read_text()
        lock = (Path(str(server._socket_folder)) / f".s.PGSQL.{server.port}.lock").read_text()
    lines = text.splitlines()
    (cluster / "postmaster.pid").write_text("\n".join([str(os.getpid()), *lines[1:], ""]))
    sockets = Path(lines[4])
    os.mkdir(sockets, mode=0o700)
    (sockets / f".s.PGSQL.{lines[3]}.lock").write_text("\n".join([str(os.getpid()), *lock.splitlines()[1:], ""]))
    async with make(data_dir) as server:
        assert server.pid != os.getpid()
        assert await ask(server.dsn, "SELECT 1") == 1


async def test_commands_that_begin_together_make_roles_and_grants_one_after_the_other(data_dir: Path) -> None:
    """PostgreSQL refuses grants on one table at the same time, and two servers may start in one moment."""
    async with make(data_dir) as server:
        together = await asyncio.gather(*(ensure_roles(server) for _ in range(8)))
        assert len(set(together)) == 1
        await schema.migrate(together[0].owner)
        await asyncio.gather(*(grant_roles(server) for _ in range(8)))
        assert isinstance(await ask(together[0].server, "SELECT count(*) FROM myria.tenants"), int)


async def test_grants_that_are_there_wait_for_nobody(data_dir: Path) -> None:
    """A command beside a running server grants anew, and no reader holds it up; a lost or loosened rule comes back."""
    async with make(data_dir) as server:
        owner = (await ensure_roles(server)).owner
        await schema.migrate(owner)
        await grant_roles(server)
        superuser = server.superuser_dsn("myria")
        rules = await ask(superuser, POLICIES)
        assert "myria_server_asks" in str(rules)
        reader = await asyncpg.connect(superuser)
        try:
            async with reader.transaction():
                for (table,) in await reader.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'myria'"):
                    await reader.execute(f"LOCK TABLE myria.{table} IN ACCESS SHARE MODE")
                async with asyncio.timeout(PATIENCE_S):
                    await grant_roles(server)
            await reader.execute("DROP POLICY myria_server_asks ON myria.erased")
            await reader.execute("DROP POLICY myria_operator_erases ON myria.events")
            await reader.execute("CREATE POLICY myria_operator_erases ON myria.events USING (true)")
        finally:
            await reader.close()
        await grant_roles(server)
        assert await ask(superuser, POLICIES) == rules


async def test_roles_are_made_once_and_mended(data_dir: Path) -> None:
    """The planes' roles and their database appear once; a changed password is set back to the one kept."""
    async with make(data_dir) as server:
        dsns = await ensure_roles(server)
        assert await ensure_roles(server) == dsns
        for dsn, role in ((dsns.owner, "myria_owner"), (dsns.server, "myria_server"), (dsns.builder, "myria_builder")):
            assert await ask(dsn, "SELECT current_user || ' ' || current_database()") == f"{role} myria"
        await ask(server.dsn, "ALTER ROLE myria_server PASSWORD 'another'")
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(dsns.server)
        await ensure_roles(server)
        assert await ask(dsns.server, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") is False
        assert await ask(dsns.owner, "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'myria'") == (
            "myria_owner"
        )
