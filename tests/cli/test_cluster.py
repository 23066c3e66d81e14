"""What the chart's own pods run: migrations that wait and grant, the trial's PostgreSQL, and the smoke test."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

import asyncpg
import pytest

from myria.db.database import Database as Pool
from myria.settings import Settings
from myria_embedded.trial import TrialLogin
from myria_operator.ledger import Ledger
from tests.cli.conftest import Call, call
from tests.support.postgres import Database, Databases
from tests.support.processes import Spawned, Spawner, free_port

pytestmark = pytest.mark.processes


def test_migrating_with_grant_lets_every_plane_in(databases: Databases) -> None:
    """The owner alone migrates and grants; each plane then finds a current schema."""
    database = databases.create_empty()
    assert call("migrate", "--check", "--dsn", database.server_dsn).status == 6
    done = call("migrate", "--grant", "--dsn", database.dsn)
    assert done.status == 0, done.err
    for dsn in (database.server_dsn, database.builder_dsn, database.operator_dsn):
        assert call("migrate", "--check", "--dsn", dsn).status == 0
    assert call("migrate", "--grant", "--dsn", database.dsn).status == 0
    databases.drop(database)


def test_waiting_ends_when_the_schema_is_there(databases: Databases, spawn: Spawner) -> None:
    """`migrate --check --wait` says what it waits for, once, and ends well as soon as somebody has migrated."""
    database = databases.create_empty()
    waiting = spawn.myria("migrate", "--check", "--wait", "3600", "--dsn", database.server_dsn)
    waiting.wait_for("waiting: the schema lacks")
    assert call("migrate", "--grant", "--dsn", database.dsn).status == 0
    assert waiting.wait() == 0
    assert waiting.output().count("waiting:") <= 2
    databases.drop(database)


def test_waiting_for_a_database_that_never_comes_ends_with_its_error() -> None:
    """After the time given it fails as it would have at once."""
    refused = call("migrate", "--wait", "4", "--dsn", f"postgresql://a:b@127.0.0.1:{free_port()}/c")
    assert refused.status == 5
    assert refused.err.count("waiting: the database cannot be reached") == 1


class Trial:
    """A running `myria trial-postgres`."""

    def __init__(self, spawn: Spawner, folder: Path, **passwords: str) -> None:
        self.port = free_port()
        self._passwords = {role: passwords.get(role, role) for role in ("owner", "server", "operator", "builder")}
        planes = {"MIGRATE": "owner", "SERVER": "server", "OPERATOR": "operator", "BUILDER": "builder"}
        self.program: Spawned = spawn.myria(
            *("trial-postgres", "--data-dir", folder, "--port", str(self.port)),
            env={f"{plane}_DSN": self.dsn(role) for plane, role in planes.items()},
        )
        self.program.wait_for("trial_ready", 60.0)

    def dsn(self, role: str, password: str | None = None) -> str:
        """Return how a role of the planes connects; the password may hold anything that a URL can carry."""
        secret = self._passwords[role] if password is None else password
        return f"postgresql://myria_{role}:{secret}@127.0.0.1:{self.port}/myria"


async def rows(dsn: str, query: str) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetch(query)
    finally:
        await connection.close()


def test_the_trials_postgres_keeps_data_and_takes_new_passwords(spawn: Spawner, tmp_path: Path) -> None:
    """Roles and database are there when the port opens; after a restart with other passwords the data still is."""
    first = Trial(spawn, tmp_path / "data")
    assert call("migrate", "--grant", "--dsn", first.dsn("owner")).status == 0
    assert call("migrate", "--check", "--dsn", first.dsn("server")).status == 0
    superuser = json.loads((tmp_path / "data" / "passwords.json").read_text())["postgres"]["password"]
    admin = f"postgresql://postgres:{superuser}@127.0.0.1:{first.port}/postgres"
    rules = asyncio.run(rows(admin, "SELECT * FROM pg_hba_file_rules WHERE type = 'host' ORDER BY rule_number"))
    outside = [one for one in rules if one["address"] == "all"]
    assert [(one["user_name"], one["auth_method"]) for one in outside] == [
        (["postgres"], "reject"),
        (["all"], "scram-sha-256"),
    ]
    listening = asyncio.run(rows(admin, "SHOW listen_addresses"))
    assert listening[0][0] == "*"
    first.program.end(30.0)

    second = Trial(spawn, tmp_path / "data", server="other-than-before")
    assert call("migrate", "--check", "--dsn", second.dsn("server")).status == 0
    assert call("migrate", "--check", "--dsn", second.dsn("server", "server")).status == 6


def test_the_trials_postgres_waits_for_the_operator_that_ends_builds(spawn: Spawner, tmp_path: Path) -> None:
    """After an uninstall it stays until the operator has written what it ended; one that goes on does not hold it."""

    async def stop_beside_an_operator(trial: Trial, *, is_ending: bool) -> None:
        async with Pool(trial.dsn("operator")) as database:
            ledger = Ledger(database, Settings())
            async with ledger.ending() if is_ending else nullcontext():
                assert await ledger.is_ending() is is_ending
                trial.program.signal(signal.SIGTERM)
                if is_ending:
                    await asyncio.to_thread(trial.program.wait_for, "the operator writes down what it ended")
                    assert await ledger.is_ending()
            await asyncio.to_thread(trial.program.wait)

    first = Trial(spawn, tmp_path / "data")
    assert call("migrate", "--grant", "--dsn", first.dsn("owner")).status == 0
    asyncio.run(stop_beside_an_operator(first, is_ending=True))
    second = Trial(spawn, tmp_path / "data")
    asyncio.run(stop_beside_an_operator(second, is_ending=False))
    assert "waiting:" not in second.program.output()


def test_grants_need_roles_that_exist(spawn: Spawner, tmp_path: Path) -> None:
    """Where an administrator has not made the roles, the error names them and says what to do."""
    environment = {
        f"{plane}_DSN": f"postgresql://someone_{plane.lower()}:secret@h/myria"
        for plane in ("MIGRATE", "SERVER", "OPERATOR", "BUILDER")
    }
    port = free_port()
    program = spawn.myria(
        *("trial-postgres", "--data-dir", tmp_path / "data", "--port", str(port)),
        env=environment,
    )
    program.wait_for("trial_ready", 60.0)
    owner = f"postgresql://someone_migrate:secret@127.0.0.1:{port}/myria"
    refused = call("migrate", "--grant", "--dsn", owner)
    assert refused.status == 6
    assert "there is no role myria_server, myria_builder, myria_operator" in refused.err
    assert call("migrate", "--dsn", owner).status == 0


@pytest.mark.parametrize(
    "dsn",
    [
        "",
        "mysql",
        "postgresql://a@h/d",
        "postgresql://:b@h/d",
        "postgresql://a:b@h",
        "postgresql://postgres:b@h/d",
        "postgresql://a:%C3%A9@h/d",
    ],
)
def test_the_trial_refuses_connection_strings_it_cannot_serve(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Role, ASCII password and database must be there, and the superuser stays at home."""
    monkeypatch.setenv("MIGRATE_DSN", dsn)
    refused = call("trial-postgres", "--data-dir", "/nonexistent")
    assert refused.status == 6
    assert "MIGRATE_DSN" in refused.err


def test_passwords_are_read_as_urls_write_them() -> None:
    """Percent signs stand for what they encode."""
    assert TrialLogin.of("postgresql://a%40b:p%2Fq@host:5432/d%20e", "X") == TrialLogin(
        role="a@b", password="p/q", database="d e"
    )


@pytest.fixture
def url(database: Database, spawn: Spawner) -> str:
    """A memory that serves, builds and publishes."""
    program = spawn.myria("up", "--port", "0", "--json", "--dsn", database.tcp.owner)
    told: Mapping[str, str] = json.loads(program.wait_for(r'^\{"url".*\}$', 60.0)[0])
    return told["url"]


def test_the_smoke_test_appends_builds_and_finds(url: str, myria: Call) -> None:
    """It ends with the snapshot that holds its event, again on the next run, and leaves others' memory alone."""
    runs = [call("smoke", "--url", url, "--timeout", "240", "--json") for _ in range(2)]
    assert [one.status for one in runs] == [0, 0], runs
    first, second = (one.json for one in runs)
    assert first["snapshot_id"] != second["snapshot_id"]
    assert not first["held"]
    unbuilt = call("smoke", "--url", url, "--no-build", "--console", "--json")
    assert unbuilt.json["snapshot_id"] is None
    assert myria("query", "smoke", "--as", "ana", "--json").json["root"]["children"] == []
    found = myria("query", "smoke", "--as", "myria-smoke", "--events", "--json").json
    assert len(found["root"]["children"]) == 3


def test_a_held_snapshot_passes_too(database: Database, spawn: Spawner) -> None:
    """Where snapshots wait for approval, the build counts when it is held, and the tail still has the event."""
    program = spawn.myria(
        *("up", "--port", "0", "--json", "--dsn", database.tcp.owner),
        env={"MYRIA_BUILDER_AUTO_PUBLISH": "false"},
    )
    told = json.loads(program.wait_for(r'^\{"url".*\}$', 60.0)[0])
    passed = call("smoke", "--url", told["url"], "--timeout", "240", "--json")
    assert passed.status == 0, passed.err
    assert (passed.json["held"], passed.json["snapshot_id"]) == (True, None)


def test_the_smoke_test_fails_where_nothing_answers() -> None:
    """After its time it ends with an error that names the address."""
    url = f"http://127.0.0.1:{free_port()}/mcp"
    failed = call("smoke", "--url", url, "--timeout", "2")
    assert failed.status == 5
    assert url in failed.err


def test_the_smoke_test_fails_where_there_is_no_console(database: Database, spawn: Spawner) -> None:
    """Where it is told to look at the console, and that is off, it says so."""
    port = free_port()
    program = spawn.myria("serve", "--port", str(port), "--dsn", database.tcp.server)
    program.wait_for("serving MCP")
    failed = call("smoke", "--url", f"http://127.0.0.1:{port}/mcp", "--no-build", "--console")
    assert failed.status
    assert "/console does not show" in failed.err


def test_the_smoke_test_signs_in_to_the_console_and_out(database: Database, spawn: Spawner) -> None:
    """With a key it signs in, also where browsers come over TLS by another address, and leaves no session behind."""
    port = free_port()
    environment = {
        "MYRIA_AUTH_MODE": "keys",
        "MYRIA_AUTH_PUBLIC_URL": "https://memory.example",
        "MYRIA_CONSOLE_ENABLED": "true",
    }
    made = call("key", "create", "smoke", "--as", "smoke", "--dsn", database.tcp.operator, "--json")
    arguments = ("serve", "--port", str(port), "--dsn", database.tcp.server)
    spawn.myria(*arguments, env=environment).wait_for("serving MCP")
    passed = call(
        "smoke", "--url", f"http://127.0.0.1:{port}/mcp", "--no-build", "--console", "--key", made.json["key"]
    )
    assert passed.status == 0, passed.err
    assert "found it in the console" in passed.err
    listed = call("audit", "--access", "--dsn", database.tcp.operator, "--json")
    assert "console.sign_out" in listed.out


def test_the_smoke_test_fails_where_nobody_builds(database: Database, spawn: Spawner) -> None:
    """A server without anything behind it takes the event, and the test says that no build came."""
    port = free_port()
    program = spawn.myria("serve", "--port", str(port), "--dsn", database.tcp.server)
    program.wait_for("serving MCP")
    failed = call("smoke", "--url", f"http://127.0.0.1:{port}/mcp", "--timeout", "4")
    assert failed.status == 5
    assert "did not go through append, build and query" in failed.err


GIVEN = "myr_chartfirstkey_abcdefghijkmnpqrstuvwxyz23456789"


@pytest.mark.parametrize("role", ["operator", "owner"])
def test_a_key_that_is_kept_elsewhere_becomes_known_once(
    databases: Databases, spawn: Spawner, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    """`key create --key-env` waits for the schema and makes the tenant; a second run changes nothing, revoked or no."""
    database = databases.create_empty()
    create = ("key", "create", "admin", "--tenant", "acme", "--role", "admin", "--face", "admin", "--json")
    given = {"GIVEN": GIVEN, "MYRIA_MIGRATE_WAIT_S": "60", "MYRIA_SERVICE_LOG_FORMAT": "json"}
    dsn = {"operator": database.operator_dsn, "owner": database.dsn}[role]
    there = ("--key-env", "GIVEN", "--dsn", dsn)
    first = spawn.myria(*create, *there, env=given)
    first.wait_for("schema_awaited")
    assert call("migrate", "--grant", "--dsn", database.dsn).status == 0
    assert first.wait() == 0
    monkeypatch.setenv("GIVEN", f"  {GIVEN}\n")
    again = call(*create, *there)
    assert (again.status, again.json["key_id"], again.json["state"]) == (0, "chartfirstkey", "active")
    assert GIVEN not in again.out + again.err + first.output()
    place = ("--dsn", dsn, "--json")
    assert call("key", "revoke", "chartfirstkey", *place).status == 0
    assert call(*create, *there).json["state"] == "revoked"
    assert [one["tenant"] for one in call("tenant", "list", *place).json["tenants"]] == ["acme"]
    databases.drop(database)


def test_a_key_that_is_given_wrongly_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that is missing, a file that is missing or holds something else, and both at once: each is named."""
    monkeypatch.setenv("OTHER", "hello")
    (tmp_path / "other").write_text("hello", encoding="utf-8")
    create = ("key", "create", "ada", "--as", "ada", "--dsn", "postgresql://a:b@127.0.0.1:1/c")
    wrong: dict[str, tuple[str | Path, ...]] = {
        "the variable ABSENT holds no key": ("--key-env", "ABSENT"),
        "the variable OTHER holds no key": ("--key-env", "OTHER"),
        "other holds no key": ("--key-file", tmp_path / "other"),
        "cannot be read": ("--key-file", tmp_path / "absent"),
        "leave one out": ("--key-env", "OTHER", "--key-file", tmp_path / "other"),
    }
    for sentence, options in wrong.items():
        refused = call(*create, *options)
        assert refused.status == 2, refused
        assert sentence in " ".join(refused.err.split()), refused.err
