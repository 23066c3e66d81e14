"""`myria turns`: how answers compare with what hosts compute themselves, and each tenant's cut-over."""

from __future__ import annotations

from typing import Annotated, Any, cast, get_args

import typer

from myria.access.principal import TurnsMode
from myria.db import schema
from myria.db.database import Database
from myria.db.options import pool_options
from myria.errors import InvalidArgument
from myria.notes.turns.shadow import shadow_report
from myria_cli import console
from myria_cli.commands.access import PANEL, TenantName, access_store
from myria_cli.options import Options, command
from myria_cli.place import opened

_DEFAULT = "default"


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    turns = typer.Typer(no_args_is_help=True, help="Turns: shadow mode, and which tenants are cut over (/mcp/turns).")
    app.add_typer(turns, name="turns", rich_help_panel=PANEL)

    @command(
        turns,
        "shadow",
        panel=PANEL,
        examples="""
myria turns shadow --tenant team-a

myria turns shadow --json | jq '.aspects[] | select(.same < .compared)'
""",
    )
    async def shadow(
        options: Options,
        *,
        limit: Annotated[
            int, typer.Option("--limit", min=0, max=10_000, help="How many turns that differ, newest first.")
        ] = 20,
    ) -> None:
        """Show how answers compare with what hosts computed themselves: facts, items of the prompt, tokens.

        Hosts send theirs as client_result while their tenant is in shadow mode.
        """
        settings = options.settings()
        async with opened(options, settings) as place, Database(place.serving, pool_options(settings)) as database:
            await schema.check(database)
            report = await shadow_report(database, options.tenant, limit=limit)
        if options.json:
            console.write_json(report)
            return
        if not report["aspects"]:
            console.say("nothing was compared; `myria turns mode <tenant> shadow`, and hosts that send client_result")
            return
        columns = ("call", "aspect", "compared", "same", "ours", "theirs", "missing", "extra")
        console.write(console.table(columns, _rows(report["aspects"], columns), right=columns[2:]))
        if report["differing"]:
            names = ("compared_at", "context_id", "turn_id", "call", "aspect", "ours", "theirs", "missing", "extra")
            console.write(console.table(names, _rows(report["differing"], names), right=names[5:]))

    @command(turns, "mode", panel=PANEL, examples="myria turns mode team-a shadow")
    async def mode(
        options: Options,
        name: TenantName,
        mode: Annotated[
            str,
            typer.Argument(
                metavar="MODE",
                help="`on`, `shadow` (served, and compared with client_result), `off` (refused), or `default` for what "
                "the settings say.",
            ),
        ],
    ) -> None:
        """Say whether turns are served to a tenant: its cut-over, or the way back. Holds within five seconds."""
        if mode not in (*get_args(TurnsMode), _DEFAULT):
            raise InvalidArgument(f"mode must be one of {', '.join((*get_args(TurnsMode), _DEFAULT))}", field="mode")
        async with access_store(options) as store:
            tenant = await store.set_turns(name, None if mode == _DEFAULT else cast("TurnsMode", mode))
        if options.json:
            console.write_json(tenant)
        else:
            console.say(f"turns of tenant {name}: {mode}")


def _rows(found: list[dict[str, Any]], columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in columns) for row in found]
