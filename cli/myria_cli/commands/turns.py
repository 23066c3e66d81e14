"""`myria turns`: how answers compare with what hosts compute themselves, and each tenant's cut-over."""

from __future__ import annotations

from typing import Annotated, cast, get_args

import typer

from myria.errors import InvalidArgument
from myria.settings.serving import TurnsMode
from myria_cli import console
from myria_cli.commands.tenants import PANEL, TenantName, access_store
from myria_cli.options import Options, command
from myria_cli.place import database_of

_DEFAULT = "default"

app = typer.Typer(rich_help_panel=PANEL)
turns = typer.Typer(
    rich_help_panel=PANEL, no_args_is_help=True, help="Turns: shadow mode, and which tenants are cut over (/mcp/turns)."
)
app.add_typer(turns, name="turns", rich_help_panel=PANEL)


@command(turns, "shadow")
async def shadow(
    options: Options,
    *,
    limit: Annotated[int, typer.Option(min=0, max=10_000, help="How many turns that differ, newest first.")] = 20,
) -> None:
    """Show how answers compare with what hosts computed themselves: facts, items of the prompt, tokens.

    Hosts send theirs as client_result while their tenant is in shadow mode.

    Examples:
        myria turns shadow --tenant team-a
        myria turns shadow --json | jq '.aspects[] | select(.same < .compared)'
    """
    from myria.notes.turns.shadow import shadow_report

    async with database_of(options) as database:
        report = await shadow_report(database, options.tenant, limit=limit)
    if not report["aspects"]:
        options.answer(
            report, "nothing was compared; `myria turns mode <tenant> shadow`, and hosts that send client_result"
        )
        return
    compared = ("call", "aspect", "compared", "same", "ours", "theirs", "missing", "extra")
    differing = ("compared_at", "context_id", "turn_id", "call", "aspect", "ours", "theirs", "missing", "extra")
    options.answer(
        report,
        console.table({name: name for name in compared}, report["aspects"], right=compared[2:]),
        console.table({name: name for name in differing}, report["differing"], right=differing[5:])
        if report["differing"]
        else None,
    )


@command(turns, "mode")
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
    """Say whether turns are served to a tenant: its cut-over, or the way back. Holds within five seconds.

    Examples:
        myria turns mode team-a shadow
    """
    if mode not in (*get_args(TurnsMode), _DEFAULT):
        raise InvalidArgument(f"mode must be one of {', '.join((*get_args(TurnsMode), _DEFAULT))}", field="mode")
    async with access_store(options) as store:
        tenant = await store.set_turns(name, None if mode == _DEFAULT else cast("TurnsMode", mode))
    options.answer(tenant, f"turns of tenant {name}: {mode}")
