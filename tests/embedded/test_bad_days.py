"""Disks, files and versions that are not as they should be: one clear error each, and nothing lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncpg
import pytest

from myria.errors import DataDirUnusable, EmbeddedPostgresFailed
from myria_embedded import EmbeddedPostgres
from myria_embedded.account import server_account
from myria_embedded.creation import create_cluster
from myria_embedded.data_dir import ROOM_FOR_NEW
from myria_embedded.find import find_binaries
from myria_embedded.processes import end_remains, remains
from tests.support.processes import Guardian, Spawned, wait_until
from tests.support.skips import not_here

pytestmark = pytest.mark.processes

Hold = Callable[..., Spawned]
Disk = Callable[[str], Path]


def make(data_dir: Path) -> EmbeddedPostgres:
    """A server whose data nobody will miss."""
    return EmbeddedPostgres(data_dir, settings={"fsync": "off"})


async def ask(dsn: str, question: str) -> object:
    """Return the one value that a query gives."""
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(question)
    finally:
        await connection.close()


@pytest.fixture
def disk(guardian: Guardian) -> Iterator[Disk]:
    """Make a small disk of a given size, mounted on a folder of its own."""
    mounted: list[Path] = []

    def mount(size: str) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="myria-disk-"))
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=False, capture_output=True
        )
        if done.returncode:
            folder.rmdir()
            not_here("mounting a disk needs root")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "--lazy", folder], check=True)
        folder.rmdir()


def make_read_only(folder: Path) -> None:
    """Mount the disk of `folder` anew, read-only."""
    subprocess.run(["mount", "-o", "remount,ro", folder], check=True)


def refill(folder: Path) -> Path:
    """Fill the disk of `folder` to the last byte."""
    filler = folder / "filler"
    with filler.open("wb") as file:
        try:
            while True:
                file.write(b"\1" * 65536)
                file.flush()
        except OSError:
            return filler


async def test_a_read_only_disk_is_named_as_the_cause(disk: Disk) -> None:
    """On a read-only disk, empty or with a database, the error says so and which folder it is about."""
    folder = disk("300m")
    async with make(folder / "data") as server:
        await ask(server.dsn, "SELECT 1")
    make_read_only(folder)
    for data_dir in (folder / "data", folder / "new"):
        with pytest.raises(DataDirUnusable, match="read-only") as refused:
            await make(data_dir).start()
        assert str(data_dir) in refused.value.message
        assert refused.value.details["reason"] == "EROFS"


async def test_no_database_is_begun_where_it_would_not_fit(disk: Disk) -> None:
    """Too small a disk is refused before anything is written, with both numbers."""
    folder = disk("20m")
    with pytest.raises(DataDirUnusable, match=f"MB free.*needs {ROOM_FOR_NEW >> 20} MB"):
        await make(folder / "data").start()
    assert not list((folder / "data").glob("*postgres*"))
    assert not list((folder / "data").glob(".creating*"))


async def test_a_full_disk_is_named_and_the_data_is_there_once_there_is_room(disk: Disk) -> None:
    """A server on a full disk does not start, says why, and starts with all its data when room was made."""
    folder = disk("300m")
    async with make(folder / "data") as server:
        await ask(server.dsn, "CREATE TABLE kept AS SELECT 7 AS n")
    filler = refill(folder)
    with pytest.raises(DataDirUnusable, match="no room left"):
        await make(folder / "data").start()
    filler.unlink()
    async with make(folder / "data") as server:
        assert await ask(server.dsn, "SELECT n FROM kept") == 7


async def test_a_disk_that_fills_up_meanwhile_loses_nothing(disk: Disk) -> None:
    """Writes fail while the disk is full; what was committed stays, and writing goes on when there is room."""
    folder = disk("300m")
    async with make(folder / "data") as server:
        await ask(server.dsn, "CREATE TABLE kept AS SELECT 7 AS n")
        filler = refill(folder)
        with pytest.raises((asyncpg.DiskFullError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError)):
            await ask(
                server.dsn, "CREATE TABLE big AS SELECT repeat(i::text, 200) FROM generate_series(1, 200000) AS i"
            )
        filler.unlink()
        await server.wait_ready(120)
        assert await ask(server.dsn, "INSERT INTO kept VALUES (8) RETURNING n") == 8
        assert await ask(server.dsn, "SELECT sum(n)::int FROM kept") == 15


async def test_a_file_in_the_way_is_named_as_the_cause(new_dir: Path) -> None:
    """A data directory that is a file, or lies below one, is refused."""
    shutil.copy(__file__, new_dir)
    for path in (new_dir, new_dir / "below"):
        with pytest.raises(DataDirUnusable, match="a file"):
            await make(path).start()
    os.unlink(new_dir)


def test_a_creation_cut_off_is_as_if_it_never_began(new_dir: Path, hold: Hold) -> None:
    """After kill -9 in the midst of creating the database there is none; the next start makes it and clears up."""
    cuts = 0
    while cuts < 2:
        cut = hold(new_dir)
        wait_until(lambda: list(new_dir.glob(".creating-*/cluster/PG_VERSION")) or (new_dir / "postgres").exists(), 120)
        cut.kill()
        if (new_dir / "postgres").exists():  # it was quicker than we are
            end_remains(new_dir / "postgres")
            shutil.rmtree(new_dir)
        else:
            cuts += 1
    hold(new_dir).wait_for("^ready")
    wait_until(lambda: not list(new_dir.glob(".creating-*")))


async def test_a_broken_cluster_quotes_its_log(data_dir: Path) -> None:
    """When PostgreSQL refuses to start, the error holds its own last words."""
    async with make(data_dir) as server:
        control = server.cluster / "global" / "pg_control"
    control.write_bytes(b"\0" * control.stat().st_size)
    with pytest.raises(EmbeddedPostgresFailed, match=r"log ends with:\n(.*\n)*.*(FATAL|PANIC).*") as failed:
        await make(data_dir).start()
    assert str(data_dir) in failed.value.message
    assert remains(data_dir / "postgres") == []


async def test_another_major_version_is_named(data_dir: Path) -> None:
    """A cluster of a PostgreSQL that is not installed is left alone, and the error says which one it wants."""
    async with make(data_dir) as server:
        version = server.cluster / "PG_VERSION"
    version.write_text("99\n")
    with pytest.raises(EmbeddedPostgresFailed, match="created by PostgreSQL 99, and no PostgreSQL 99 is installed"):
        await make(data_dir).start()


async def test_a_cluster_is_served_by_its_own_version(new_dir: Path) -> None:
    """A cluster that an older installed version made is served by that version, not refused."""
    account = server_account(new_dir / "postgres")
    try:
        older = find_binaries(account, major=15)
    except EmbeddedPostgresFailed:
        not_here("PostgreSQL 15 (Debian: postgresql-15) is not installed")
    server = make(new_dir)
    os.mkdir(new_dir, mode=0o700)
    password = server.credentials.of("postgres")[0].password
    await create_cluster(new_dir, server.cluster, binaries=older, account=account, password=password, durable=False)
    async with server:
        assert str(await ask(server.dsn, "SHOW server_version")).startswith("15.")
        order = "SELECT string_agg(w, '' ORDER BY w) FROM unnest(ARRAY['b','B','ä','a','Z']) AS w"
        assert await ask(server.dsn, order) == "BZabä"


async def test_lost_or_foreign_passwords_are_named(data_dir: Path) -> None:
    """Without the password file, with another's, or with a damaged one, the error says which file to restore."""
    async with make(data_dir):
        pass
    passwords = data_dir / "passwords.json"
    kept = passwords.read_text()
    for text, words in (
        (None, "is gone"),
        ("{", "is damaged"),
        (kept.replace('"password": "', '"password": "x'), "are not those of the database"),
    ):
        passwords.unlink()
        if text is not None:
            passwords.write_text(text)
        with pytest.raises(EmbeddedPostgresFailed, match=f"passwords.json.*{words}"):
            await make(data_dir).start()
        passwords.write_text(kept)
        assert remains(data_dir / "postgres") == []


async def test_the_server_ends_with_a_session_that_was_killed(data_dir: Path, hold: Hold) -> None:
    """A server that nobody stops is found by the next user and stopped by it, not left for ever."""
    killed = hold(data_dir)
    pid = int(killed.wait_for(r"^ready (\d+)")[1])
    killed.kill()
    async with make(data_dir) as server:
        assert server.pid == pid
    assert remains(data_dir / "postgres") == []


async def test_a_hung_server_is_stopped_by_force(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A postmaster that does not react to a fast shutdown is ended harder, and its data survives."""
    monkeypatch.setattr(
        "myria_embedded.server.STOP_STEPS",
        ((signal.SIGINT, 0.2), (signal.SIGQUIT, 0.2), (signal.SIGKILL, 5.0)),
    )
    async with make(data_dir) as server:
        await ask(server.dsn, "CREATE TABLE kept AS SELECT 7 AS n")
        assert server.pid is not None
        os.kill(server.pid, signal.SIGSTOP)
    assert remains(data_dir / "postgres") == []
    async with make(data_dir) as server:
        assert await ask(server.dsn, "SELECT n FROM kept") == 7


async def test_a_moved_data_directory_keeps_working(data_dir: Path) -> None:
    """The folder can be renamed or copied while no server runs."""
    async with make(data_dir) as server:
        await ask(server.dsn, "CREATE TABLE kept AS SELECT 7 AS n")
    moved = data_dir.with_name("moved")
    shutil.copytree(data_dir, moved)  # as root, everything in the copy belongs to root
    async with make(moved) as server:
        assert await ask(server.dsn, "SELECT n FROM kept") == 7
