"""Every form of the console, what it may hold, and what the database holds afterwards: for tests that send them all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import asyncpg

from tests.support.postgres import Database

FORMS: Mapping[str, str | None] = {
    "/sign-out": None,
    "/events/{event}/forget": "append",
    "/events/{event}/restore": "append",
    "/notes/new": "append",
    "/notes/{note}/correct": "append",
    "/notes/{note}/forget": "append",
    "/notes/restore": "append",
    "/people/erase?name={name}&shared=remove": "erase",
    "/erasures/{erasure}/receipt": "erase",
    "/review/decide": "admin",
    "/keys/new": "admin",
    "/keys/{key}/revoke": "admin",
    "/keys/{key}/rotate": "admin",
    "/keys/grants/{grant}": "admin",
    "/changes/build": "admin",
    "/changes/abort": "admin",
    "/changes/publish": "admin",
    "/changes/discard": "admin",
    "/changes/rollback": "admin",
    "/changes/resume": "admin",
}
"""Where forms go below the console's address, each with the role that it needs; `{name}` stands for something kept."""

CALLS = frozenset({"access_log", "call_log", "key_uses"})
"""Tables that say who called, also in vain, and when a key was used."""


def fields(names: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of all forms, but for the token.

    Args:
        names: the ids and names that they hold, where these are not in the address.
    """
    return {
        "snapshot": names.get("snapshot", "snp_x"),
        "build": names.get("build", "bld_x"),
        "note": names.get("note", "note_x"),
        "confirmed": names.get("name", "ada"),
        "name": "mine",
        "role_read": "on",
        "api_core": "on",
        "own": "ada",
        "lifetime": "a day",
        "overlap": "at once",
        "expected_events": "40",
        "reason": "because",
        "content": "the plan was corrected by hand",
        "decision": "approve",
    }


Digests = dict[tuple[str, str, str], str]
"""By table, tenant and participants; the latter two are empty where rows are of none."""


@asynccontextmanager
async def watching(database: Database) -> AsyncIterator[Callable[[], Awaitable[Digests]]]:
    """Yield what returns a digest of the rows of every table, but for those that note calls."""
    connection = await asyncpg.connect(database.superuser_dsn)
    try:
        tables = await connection.fetch(
            "SELECT table_name AS name, array_agg(column_name::text) AS columns FROM information_schema.columns"
            " WHERE table_schema = 'myria' GROUP BY 1"
        )
        statement = " UNION ALL ".join(
            f"SELECT '{table['name']}', {_of(table['columns'], 'tenant_id')}, {_of(table['columns'], 'scope_id')},"
            " md5(string_agg(md5(t::text), '' ORDER BY md5(t::text)))"
            f" FROM myria.{table['name']} t GROUP BY 1, 2, 3"
            for table in tables
            if table["name"] not in CALLS
        )

        async def digests() -> Digests:
            scopes = await connection.fetch("SELECT tenant_id, scope_id::text AS id, participants FROM myria.scopes")
            people = {(scope["tenant_id"], scope["id"]): " ".join(scope["participants"]) for scope in scopes}
            rows = await connection.fetch(statement)
            return {(table, tenant, people.get((tenant, scope), "")): digest for table, tenant, scope, digest in rows}

        yield digests
    finally:
        await connection.close()


def _of(columns: list[str], name: str) -> str:
    return f"t.{name}::text" if name in columns else "''"
