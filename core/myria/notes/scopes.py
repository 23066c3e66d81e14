"""The scopes that masks see, as numbers: where the notes of an agent are looked for."""

from __future__ import annotations

from myria.db.database import Connection
from myria.db.queries import sql
from myria.log.masks import Masks
from myria.log.scopes import scope_key


async def scopes_with_notes(connection: Connection, tenant: str, masks: Masks) -> list[int]:
    """Return the numbers of the scopes that masks see, ascending; those without any live note may be left out."""
    found: set[int] = set()
    exact = [scope_key(mask.participants) for mask in masks if mask.exact]
    if exact:
        found |= {row["scope_id"] for row in await connection.fetch(sql("notes.scopes_exactly"), tenant, exact)}
    for mask in masks:
        if mask.exact:
            continue
        names = list(mask.participants)
        driver = await connection.fetchrow(sql("retrieval.driver"), tenant, names)
        if driver is None:
            raise AssertionError("somebody always asks")
        rows = await connection.fetch(sql("notes.scopes_containing"), tenant, driver["participant"], names)
        found |= {row["scope_id"] for row in rows}
    return sorted(found)
