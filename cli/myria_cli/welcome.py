"""What `myria up` says once everything runs: where it is served, how to connect, and the first key."""

from __future__ import annotations

import json
import os
from typing import Any

from rich.panel import Panel
from rich.text import Text

from myria.access.principal import API_NAMES, ApiName
from myria.access.secrets import MadeKey
from myria.access.store import AccessStore
from myria.db.database import Database
from myria.db.options import pool_options
from myria.index.embeddings.choosing import chosen
from myria.settings import Settings
from myria_cli.local import RunningPlanes
from myria_cli.options import Options
from myria_cli.place import Place, data_dir_of

_WHOM: tuple[tuple[ApiName, str, str], ...] = (
    ("agent", "agents", "a model's own memory"),
    ("core", "programs", "events and topics, over MCP"),
    ("rest", "REST", "described at /api/v1/docs"),
    ("turns", "turns", "hosts, around each turn"),
    ("admin", "admin", "builds and snapshots"),
)
"""Each API with its name in the panel, and whom its address is for; in the order of the panel."""


async def first_key(place: Place, settings: Settings, tenant: str) -> MadeKey | None:
    """Make the tenant if it is missing, and a key if it has no valid one; return the new key or None."""
    async with Database(place.control, pool_options(settings, size=1)) as database:
        return await AccessStore(database, actor="up").create_first_key(tenant, settings.auth.local_participants)


def welcome(
    options: Options, settings: Settings, place: Place, running: RunningPlanes, key: MadeKey | None = None
) -> None:
    """Print all addresses and how to connect; `key` is a key that was made now, and is shown only here."""
    document = {
        "url": running.url,
        **{f"{api}_url": running.urls.get(api) for api in API_NAMES if api != "core"},
        "console_url": running.console,
        "tenant": options.tenant,
        "auth": settings.auth.mode,
        "embeddings": chosen(settings).why,
        "key": None if key is None else key.text,
        "data_dir": str(data_dir_of(options)) if place.embedded is not None else None,
        "pid": os.getpid(),
        "server_pid": running.server.pid,
        "postgres_pid": place.embedded.pid if place.embedded is not None else None,
    }
    text = Text()
    for api, name, whom in _WHOM:
        if api in running.urls:
            text.append_text(Text.assemble((f"{name:<11}", "dim"), (running.urls[api], "bold cyan")))
            text.append(f"  {whom}\n", style="dim")
    tenant = f", tenant {options.tenant}" if options.tenant != "default" else ""
    for name, value in (("memory", f"{place.name}{tenant}\n"), ("embeddings", f"{chosen(settings).why}\n\n")):
        text.append_text(Text.assemble((f"{name:<11}", "dim"), value))
    text.append_text(how_to_connect(running.urls.get("agent", running.url), settings, key))
    panel = Panel(text, title="Myria is up", subtitle="Ctrl-C stops everything", expand=False, padding=(1, 2))
    options.answer(document, panel)


def how_to_connect(url: str, settings: Settings, key: MadeKey | None) -> Text:
    """Return instructions for connecting an MCP client to `url`; `key` is a key that was made now, if any."""
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
