"""One throw-away PostgreSQL per test session, one database per test, cloned from a migrated template."""

from __future__ import annotations

import asyncio
import itertools
import re
import shutil
import tempfile
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import asyncpg

from myria_embedded import EmbeddedPostgres, RoleDsns, ensure_roles, grant_roles, role_dsns
from myria_embedded.roles import OWNER
from tests.support.patience import PATIENCE_S
from tests.support.place import fast_folder
from tests.support.processes import Guardian

THROW_AWAY = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_wal_size": "256MB",
    "min_wal_size": "64MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_connections": "200",
}
"""Settings of a server whose data nobody will miss."""

TEMPLATE = "myria_template"

T = TypeVar("T")


class LoopThread:
    """An event loop of its own, so that fixtures and synchronous tests can await without touching a test's loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fixtures", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what `work` returns."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """One test's own database, migrated and empty; how each role connects to it."""

    name: str
    dsn: str
    """The owner's: may change the schema, is no superuser, so forced row-level security binds it too."""
    server_dsn: str
    builder_dsn: str
    operator_dsn: str
    superuser_dsn: str
    tcp: RoleDsns
    """The same over loopback TCP, for programs that know no Unix sockets."""


def _ask_for_types_once(known: Any) -> None:
    """Let asyncpg ask a connection's server once what a type is, not on each connection that meets it: for arrays and
    composite types that was a quarter of a short test's CPU. A number is one type in all databases of a server."""
    driver: Any = asyncpg.Connection
    ask = driver._introspect_types
    answers: dict[frozenset[int], Any] = {}

    async def look_up(connection: Any, types: Any, timeout: float | None) -> Any:
        if connection._addr != known._addr:
            return await ask(connection, types, timeout)
        if (asked := frozenset(types)) not in answers:
            answers[asked] = await ask(connection, types, timeout)
        return answers[asked]

    driver._introspect_types = look_up


class Databases:
    """The session's server: makes and drops databases."""

    def __init__(self, guardian: Guardian) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="myria-tests-", dir=fast_folder()))
        guardian.tell(f"folder {self.folder}")
        self.loop = LoopThread()
        self.server = EmbeddedPostgres(self.folder / "data", exclusive=True, settings=THROW_AWAY)
        self._numbers = itertools.count(1)
        self._has_template = False
        self._admin: asyncpg.Connection | None = None
        self.loop.run(self._start())

    async def _start(self) -> None:
        await self.server.start()
        await ensure_roles(self.server)
        self._admin = await asyncpg.connect(self.server.dsn)
        await self._trust_the_socket()
        _ask_for_types_once(self._admin)

    async def _trust_the_socket(self) -> None:
        """Ask for no password on the Unix socket, whose folder is this user's alone: tests connect tens of thousands of
        times, and to prove a password is a third of what that costs."""
        rules = self.folder / "data" / "postgres" / "pg_hba.conf"
        text = rules.read_text(encoding="utf-8")
        trusting = re.sub(r"^(local\s+all\s+all\s+)scram-sha-256$", r"\1trust", text, flags=re.MULTILINE)
        assert trusting != text
        rules.write_text(trusting, encoding="utf-8")
        await self._execute("SELECT pg_reload_conf()")

    async def _execute(self, statement: str) -> None:
        assert self._admin is not None
        await self._admin.execute(statement)

    def execute(self, statement: str) -> None:
        """Run a statement as superuser in the database `postgres`."""
        self.loop.run(self._execute(statement))

    def create_empty(self) -> Database:
        """Make a database of the owner's without any migration."""
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} OWNER {OWNER} TEMPLATE template0 STRATEGY file_copy")
        return self._named(name)

    def create(self) -> Database:
        """Make a migrated database, as fast as copying files."""
        if not self._has_template:
            self.loop.run(self._make_template())
            self._has_template = True
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} OWNER {OWNER} TEMPLATE {TEMPLATE} STRATEGY file_copy")
        return self._named(name)

    def copy(self, database: Database) -> Database:
        """Make a database with the same content; nobody may be connected to the one that is copied."""
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} OWNER {OWNER} TEMPLATE {database.name} STRATEGY file_copy")
        return self._named(name)

    def drop(self, database: Database) -> None:
        """Drop a database, ending whoever is still connected."""
        self.execute(f"DROP DATABASE IF EXISTS {database.name} WITH (FORCE)")

    @contextmanager
    def fresh(self) -> Iterator[Database]:
        """Lend a migrated database for the block: one per hypothesis example, say."""
        database = self.create()
        try:
            yield database
        finally:
            self.drop(database)

    def close(self) -> None:
        """Stop the server and remove every trace of it."""
        self.loop.run(self._stop())
        self.loop.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    async def _stop(self) -> None:
        if self._admin is not None:
            self._admin.terminate()
        await self.server.stop()

    async def _make_template(self) -> None:
        from myria.db.schema import migrate

        await self._execute(f"DROP DATABASE IF EXISTS {TEMPLATE} WITH (FORCE)")
        await self._execute(f"CREATE DATABASE {TEMPLATE} OWNER {OWNER} TEMPLATE template0")
        await migrate(role_dsns(self.server, TEMPLATE).owner)
        await grant_roles(self.server, TEMPLATE)
        # The first connection to a database writes what each further one reads instead of its catalogs; copies have it.
        await (await asyncpg.connect(role_dsns(self.server, TEMPLATE).superuser)).close()
        await self._execute(f"ALTER DATABASE {TEMPLATE} ALLOW_CONNECTIONS false")

    def _named(self, name: str) -> Database:
        dsns = role_dsns(self.server, name)
        return Database(
            name=name,
            dsn=dsns.owner,
            server_dsn=dsns.server,
            builder_dsn=dsns.builder,
            operator_dsn=dsns.operator,
            superuser_dsn=dsns.superuser,
            tcp=role_dsns(self.server, name, tcp=True),
        )
