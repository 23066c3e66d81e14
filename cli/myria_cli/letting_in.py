"""The first key of a memory, which `myria up --auth` makes where there is none, and how clients connect."""

from __future__ import annotations

import json
from typing import Any

from rich.text import Text

from myria.access.principal import FACES
from myria.access.secrets import MadeKey
from myria.access.store import AccessStore, NewKey
from myria.db.database import Database
from myria.db.options import pool_options
from myria.settings import Settings
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


def how_to_connect(url: str, settings: Settings, key: MadeKey | None) -> Text:
    """Return what a person does to connect an MCP client to `url`; `key` is the one that was made now, if any."""
    text = Text()
    server: dict[str, Any] = {"type": "http", "url": url}
    if key is not None:
        names = " and ".join(settings.auth.local_participants)
        text.append(f"The key below is shown this once. It asks and appends as {names}, and administers at ")
        text.append("/mcp/admin.\n\n")
        server["headers"] = {"Authorization": f"Bearer {key.text}"}
    elif settings.auth.mode == "keys":
        text.append("Callers need a key: `myria key list` shows which there are, `myria key create` makes one.\n\n")
        if not settings.auth.server:
            server["headers"] = {"Authorization": "Bearer myr_..."}
    if settings.auth.server:
        text.append("Programs that can sign in need the address alone: they open a page that asks for a key.\n\n")
    text.append("Paste this into an MCP client's configuration:\n", style="dim")
    text.append(json.dumps({"mcpServers": {"myria": server}}, indent=2))
    return text
