"""The application that `myria` runs: its commands by subject, and what its help says."""

from __future__ import annotations

from importlib import metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from myria.errors import InvalidArgument
from myria_cli import console
from myria_cli.commands import (
    access,
    auditing,
    building,
    cluster,
    erasing,
    events,
    granting,
    hosting,
    keeping,
    keeping_secrets,
    operating,
    querying,
    running,
    snapshots,
    turning,
)

_UsageError: Any = typer.BadParameter.__base__  # typer brings a click of its own, or uses the other one
"""Arguments that no command takes: unknown, missing, of a wrong form."""


class CodedUsage(TyperGroup):
    """Refuses arguments that its commands do not take as every other error, where the answer is to be JSON."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the arguments name."""
        as_json = "--json" in ctx.args
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            if not as_json:
                raise
            console.report(InvalidArgument(" ".join(error.format_message().split())), as_json=True)
            raise typer.Exit(InvalidArgument.exit_status) from error


app = typer.Typer(
    name="myria",
    cls=CodedUsage,
    help="Long-term memory for conversational agents: an append-only event log, compiled into versioned topic trees, "
    "read over MCP.\n\nStart with `myria demo` (a sample conversation, three questions, their answer trees) or "
    "`myria up` (the same without the sample).",
    epilog="Exit status: 0 done · 1 a check failed or a bug · 2 wrong input · 3 not found · 4 the memory's state "
    "forbids it · 5 the database is away (retry) · 6 the set-up needs a person · 7 a build failed · 130 Ctrl-C",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


@app.callback()
def everything(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=lambda asked: _say_version() if asked else None,
            is_eager=True,
            help="Say which version this is; `myria version` says more.",
        ),
    ] = False,
) -> None:
    """Take what stands before a command."""


def _say_version() -> None:
    console.out().print(f"myria {metadata.version('myria')}")
    raise typer.Exit


for subject in (
    running,
    hosting,
    operating,
    querying,
    events,
    building,
    snapshots,
    keeping,
    keeping_secrets,
    erasing,
    access,
    granting,
    turning,
    cluster,
    auditing,
):
    subject.register(app)
