"""A PostgreSQL that others reach over the network, to try Myria out on Kubernetes: one process, one folder.

Who may log in is given as connection strings, which come from Secrets; the superuser stays on the Unix socket and on
loopback. There is no TLS, no replica and no backup.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from myria.errors import ConfigurationError
from myria_embedded import data_dir as folders
from myria_embedded.account import give, server_account
from myria_embedded.credentials import SUPERUSER, Credential, scram_verifier
from myria_embedded.roles import make_roles
from myria_embedded.server import EmbeddedPostgres, Progress

CONNECTIONS = 200
_RULES = f"""\
local all all scram-sha-256
host all all 127.0.0.1/32 scram-sha-256
host all all ::1/128 scram-sha-256
host all {SUPERUSER} all reject
host all all all scram-sha-256
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLogin:
    """Role, password and database of a connection string."""

    role: str
    password: str
    database: str

    @classmethod
    def of(cls, dsn: str, name: str) -> TrialLogin:
        """Take a connection string apart; `name` is what it is called in the error.

        Raises:
            ConfigurationError: it lacks one of the three, or names the superuser.
        """
        try:
            parts = urlsplit(dsn)
            login = cls(
                role=unquote(parts.username or ""),
                password=unquote(parts.password or ""),
                database=unquote(parts.path.removeprefix("/")),
            )
        except ValueError:
            login = cls(role="", password="", database="")
        if not (login.role and login.password and login.database) or not login.password.isascii():
            raise ConfigurationError(
                f"{name} must be postgresql://role:password@host/database with an ASCII password", field=name
            )
        if login.role == SUPERUSER:
            raise ConfigurationError(f"{name} names {SUPERUSER}, which nobody reaches over the network", field=name)
        return login


@asynccontextmanager
async def trial_server(
    data_dir: Path, port: int, *, owner: TrialLogin, others: Sequence[TrialLogin], progress: Progress
) -> AsyncIterator[EmbeddedPostgres]:
    """Run a server of `data_dir` on every address, with a database of `owner` and the roles of all logins.

    Passwords that changed since the last start are changed in the database.

    Raises:
        ConfigurationError: the logins name different databases.
        DataDirUnusable, EmbeddedPostgresFailed: as `EmbeddedPostgres`.
    """
    if others_in := sorted({login.database for login in others} - {owner.database}):
        raise ConfigurationError(f"the logins name several databases: {owner.database}, {', '.join(others_in)}")
    folders.prepare(data_dir)
    cluster = data_dir / "postgres"
    if cluster.is_dir() and cluster.stat().st_uid == os.geteuid():
        cluster.chmod(stat.S_IRWXU)  # a volume's fsGroup may have opened it to the group, which PostgreSQL refuses
    credentials = [
        Credential(
            role=login.role, password=login.password, verifier=scram_verifier(login.password, secrets.token_bytes(16))
        )
        for login in (owner, *others)
    ]
    # Private first: once the public port is open, roles and database exist.
    async with EmbeddedPostgres(data_dir, exclusive=True, progress=progress) as server:
        await make_roles(server, credentials, owner.database, owner.role)
        rules = cluster / "pg_hba.conf"
        with folders.usable(data_dir):
            rules.write_text(_RULES, encoding="ascii")
            give(rules, server_account(cluster))
    settings = {"max_connections": str(CONNECTIONS)}
    async with EmbeddedPostgres(
        data_dir, exclusive=True, settings=settings, progress=progress, public_port=port
    ) as server:
        yield server
