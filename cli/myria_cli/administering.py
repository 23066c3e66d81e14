"""What the commands that ask for builds and move snapshots have in common."""

from __future__ import annotations

import getpass
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from myria.access.journal import Act, Journal
from myria.errors import MyriaError, UnavailableError
from myria_cli.options import Options

if TYPE_CHECKING:
    from myria.builds.administration import Administration

PANEL = "Builds and snapshots"

Json = dict[str, Any]

Reason = Annotated[str | None, typer.Option(help="Why, for the record.")]


def actor() -> str:
    """Return the name of the user who runs a command, for the history of the pointer."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        return "cli"


async def administered(
    memory: Administration, options: Options, action: str, target: str | None, work: Awaitable[Json]
) -> Json:
    """Do what a command asks for, and write into the journal of access who did it and how it ended."""
    outcome = "ok"
    try:
        answer = await work
        target = answer.get("snapshot_id") or answer.get("request_id") or target
    except UnavailableError:
        raise
    except MyriaError as error:
        outcome = error.code
        raise
    finally:
        act = Act(tenant=options.tenant, actor=actor(), action=action, target=target, outcome=outcome)
        await Journal(memory.appending, memory.settings.audit).act(act)
    return answer
