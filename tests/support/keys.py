"""Keys of tests: a store of tenants and keys, and a key made in one line."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from myria.access import secrets
from myria.access.store import AccessStore, NewKey
from myria.db.database import Database as Pool
from tests.support.postgres import Database


@contextlib.asynccontextmanager
async def access_store(database: Database, *tenants: str) -> AsyncIterator[AccessStore]:
    """Open the store of a database's tenants and keys; `default` and the other `tenants` exist in it."""
    async with Pool(database.operator_dsn) as pool:
        store = AccessStore(pool, actor="test")
        for tenant in ("default", *tenants):
            await store.ensure_tenant(tenant)
        yield store


async def make_key(store: AccessStore, *own: str, **more: Any) -> str:
    """Make a key that asks as `own`, and return its text; `more` are fields of `NewKey`. Several may have one name."""
    new = NewKey(**{"name": "k", "tenant": "default", "own": own, **more})
    made, _ = await store.create_key(new, secrets.make_key())
    return made.text
