"""The first key of a memory: `myria up --auth` makes a tenant and a key where there are none."""

from __future__ import annotations

from myria.access.principal import FACES
from myria.access.secrets import MadeKey
from myria.access.store import AccessStore, NewKey
from myria.settings import Settings
from myria.store.database import Database
from myria.store.options import pool_options
from myria_cli.place import Place

FIRST_KEY = "first"


async def first_key(place: Place, settings: Settings, tenant: str) -> MadeKey | None:
    """Make the tenant and a key that may do everything but erase; None where the tenant has a key that is good."""
    async with Database(place.control, pool_options(settings, size=1)) as database:
        store = AccessStore(database, actor="up")
        await store.ensure_tenant(tenant)
        if any(details.row["state"] == "active" for details in await store.keys(tenant)):
            return None
        made, _ = await store.create_key(
            NewKey(
                name=FIRST_KEY,
                tenant=tenant,
                roles=("append", "read", "admin"),
                faces=FACES,
                own=settings.auth.local_participants,
                description="made by `myria up --auth`",
            ),
            actor="up",
        )
        return made
