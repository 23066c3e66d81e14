"""`myria grant`: what people have allowed programs to do with their keys."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import typer

from myria.access.consents import Consents
from myria.db import schema
from myria.db.database import Database
from myria.db.options import pool_options
from myria_cli import console
from myria_cli.administering import actor
from myria_cli.commands.access import PANEL
from myria_cli.options import Options, command
from myria_cli.place import opened

GrantId = Annotated[str, typer.Argument(metavar="GRANT_ID", help="The grant's id, as `myria grant list` shows it.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    grant = typer.Typer(no_args_is_help=True, help="What people allowed programs to do with their keys (auth.server).")
    app.add_typer(grant, name="grant", rich_help_panel=PANEL)

    @command(grant, "list", panel=PANEL)
    async def list_(
        options: Options,
        *,
        all_tenants: Annotated[bool, typer.Option("--all-tenants", help="Of every tenant, not only --tenant.")] = False,
    ) -> None:
        """List grants: which program may do what with whose key, since when, and until when."""
        async with _consents(options) as consents:
            grants = await consents.grants(None if all_tenants else options.tenant)
        if options.json:
            console.write_json({"grants": grants})
            return
        if not grants:
            console.say("no grants yet; a program asks for one when auth.server is on")
            return
        rows = [
            (
                grant["grant_id"],
                grant["client"],
                grant["tenant"],
                grant["key_id"],
                grant["state"],
                grant["face"],
                ", ".join(grant["scopes"]),
                console.to_the_second(grant["created_at"]),
                console.to_the_second(grant["last_used_at"]) or "not yet",
                console.to_the_second(grant["expires_at"]),
            )
            for grant in grants
        ]
        columns = ("grant", "program", "tenant", "key", "state", "face", "scopes", "since", "last used", "until")
        console.write(console.table(columns, rows))

    @command(grant, "show", panel=PANEL)
    async def show(options: Options, grant_id: GrantId) -> None:
        """Show one grant."""
        async with _consents(options) as consents:
            _show(options, await consents.grant(grant_id), None)

    @command(grant, "revoke", panel=PANEL)
    async def revoke(options: Options, grant_id: GrantId) -> None:
        """End a grant with all its tokens: within a second no process accepts them any more. The key stays good."""
        async with _consents(options) as consents:
            _show(options, await consents.revoke(grant_id), f"the grant {grant_id} has ended")


@asynccontextmanager
async def _consents(options: Options) -> AsyncIterator[Consents]:
    settings = options.settings()
    async with (
        opened(options, settings) as place,
        Database(place.control, pool_options(settings, size=1)) as database,
    ):
        await schema.check(database)
        yield Consents(database, actor=actor())


def _show(options: Options, grant: dict[str, Any], sentence: str | None) -> None:
    if options.json:
        console.write_json(grant)
        return
    console.write_fields(grant)
    if sentence is not None:
        console.say(sentence)
