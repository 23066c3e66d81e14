"""A PostgreSQL that others reach over the network, to try Myria out on Kubernetes: one process, one folder.

The roles that may log in come as connection strings, out of Secrets; the superuser can log in only through the Unix
socket and over loopback. There is no TLS, no replica and no backup.
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
_HBA_RULES = f"""\
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
        """Split a connection string into role, password and database; `name` is the setting's name for the error.

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
    """Run the server of `data_dir` on every address, with the database of `owner` and a role for each login.

    Roles whose password changed since the last start get the new one.

    Raises:
        ConfigurationError: the logins name different databases.
        DataDirUnusable, EmbeddedPostgresFailed: as `EmbeddedPostgres`.
    """
    if other_databases := sorted({login.database for login in others} - {owner.database}):
        raise ConfigurationError(f"the logins name several databases: {owner.database}, {', '.join(other_databases)}")
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
    # The server first runs on loopback alone: roles, database and access rules must exist before the port opens.
    async with EmbeddedPostgres(data_dir, exclusive=True, progress=progress) as server:
        await make_roles(server, credentials, owner.database, owner.role)
        rules = cluster / "pg_hba.conf"
        with folders.usable(data_dir):
            rules.write_text(_HBA_RULES, encoding="ascii")
            give(rules, server_account(cluster))
    settings = {"max_connections": str(CONNECTIONS)}
    async with EmbeddedPostgres(
        data_dir, exclusive=True, settings=settings, progress=progress, public_port=port
    ) as server:
        yield server
