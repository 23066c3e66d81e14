"""The database schema as SQL files: a baseline in files by subject, and the numbered migrations that follow it.

`schema/` is the baseline, applied to an empty database in the order of the files' names. Its files `*_functions_*`
hold nothing but functions, each `CREATE OR REPLACE`, so that a later program re-creates all of them at once.
`numbered/` holds what changes the schema after a release.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

PLANE_ROLES = ("myria_server", "myria_builder", "myria_operator")
"""The roles to which roles.sql grants what each plane needs."""

BASELINE = 1
"""The version of the baseline in the register of applied migrations."""

_NUMBERED = re.compile(r"^(\d{4})_([a-z0-9_]+)\.sql$")
_FUNCTIONS = re.compile(r"^\d\d_functions_[a-z]+\.sql$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One step of the schema: its number, its purpose, its SQL, and the SHA-256 by which it is recognized."""

    version: int
    name: str
    sql: str
    checksum: str

    def __str__(self) -> str:
        return f"{self.version:04d}_{self.name}"


@cache
def migrations() -> tuple[Migration, ...]:
    """Return the baseline and every numbered migration, in order.

    The baseline's SQL includes the functions, but its checksum does not: they may change without a new baseline.
    """
    files = _files("schema")
    tables = "".join(text for name, text in files.items() if not _FUNCTIONS.match(name))
    baseline = Migration(version=BASELINE, name="baseline", sql="".join(files.values()), checksum=_digest(tables))
    numbered = [
        Migration(version=int(match[1]), name=match[2], sql=text, checksum=_digest(text))
        for name, text in _files("numbered").items()
        if (match := _NUMBERED.match(name))
    ]
    return (baseline, *numbered)


@cache
def functions() -> Migration:
    """Return what re-creates every function; it has the version 0, whatever the schema's is."""
    text = "".join(text for name, text in _files("schema").items() if _FUNCTIONS.match(name))
    return Migration(version=0, name="functions", sql=text, checksum=_digest(text))


def roles_sql() -> str:
    """Return the SQL that an administrator runs to create the planes' roles and their grants."""
    return (resources.files(__name__) / "roles.sql").read_text(encoding="utf-8")


def _files(folder: str) -> dict[str, str]:
    """Return the SQL files of a folder by name, in order."""
    entries = [entry for entry in (resources.files(__name__) / folder).iterdir() if entry.name.endswith(".sql")]
    return {entry.name: entry.read_text(encoding="utf-8") for entry in sorted(entries, key=lambda entry: entry.name)}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
