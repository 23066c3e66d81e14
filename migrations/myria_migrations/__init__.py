"""The database schema: ordered, forward-only SQL files, read through importlib.resources."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

PLANE_ROLES = ("myria_server", "myria_builder", "myria_operator")
"""The roles to which roles.sql grants what each plane needs."""

_NAME = re.compile(r"^(\d{4})_([a-z0-9_]+)\.sql$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One step of the schema: its number, its purpose, its SQL and the SHA-256 of that SQL."""

    version: int
    name: str
    sql: str
    checksum: str


def migrations() -> list[Migration]:
    """Return every migration, in order."""
    return list(_read())


@cache
def _read() -> tuple[Migration, ...]:
    """Read the files once: who migrates asks before each step what is missing."""
    all_migrations = []
    for entry in resources.files(__name__).iterdir():
        match = _NAME.match(entry.name)
        if match:
            sql = entry.read_text(encoding="utf-8")
            all_migrations.append(
                Migration(
                    version=int(match[1]),
                    name=match[2],
                    sql=sql,
                    checksum=hashlib.sha256(sql.encode()).hexdigest(),
                )
            )
    return tuple(sorted(all_migrations, key=lambda migration: migration.version))


def roles_sql() -> str:
    """Return the SQL that an administrator runs to create the planes' roles and their grants."""
    return (resources.files(__name__) / "roles.sql").read_text(encoding="utf-8")
