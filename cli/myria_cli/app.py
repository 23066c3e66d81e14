"""The application that `myria` runs: its commands by subject, and what its help says."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from myria.errors import InvalidArgument
from myria.log.synonyms import nearest
from myria_cli import console

SUBJECTS: dict[str, tuple[str, ...]] = {
    "running": ("up", "demo", "serve"),
    "working": ("build",),
    "hosting": ("connect", "hook"),
    "operating": ("operate",),
    "querying": ("query",),
    "events": ("events", "import", "export"),
    "building": ("rebuild",),
    "snapshots": ("publish", "discard", "rollback", "resume", "snapshots", "status", "show", "diff"),
    "keeping": ("migrate", "verify"),
    "versions": ("version",),
    "keeping_secrets": ("secret",),
    "erasing": ("erase",),
    "access": ("tenant", "key"),
    "granting": ("grant",),
    "turning": ("turns",),
    "cluster": ("smoke", "make-logins", "make-key-secret", "trial-postgres"),
    "auditing": ("audit", "feedback", "replay"),
}
"""The modules of `myria_cli.commands`, in the order of the help page, each with the first words it takes."""

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
            _name_what_is_meant(error)
            if not as_json:
                raise
            console.report(InvalidArgument(" ".join(error.format_message().split())), as_json=True)
            raise typer.Exit(InvalidArgument.exit_status) from error


def _name_what_is_meant(error: Any) -> None:
    """Let the refusal of an unknown option name the one that is meant, as those of unknown arguments do elsewhere."""
    unknown = getattr(error, "option_name", None)
    if unknown is None or error.ctx is None:
        return
    options = [option for parameter in error.ctx.command.params for option in parameter.opts if option[:2] == "--"]
    known = {option.removeprefix("--").replace("-", "_"): option for option in options}
    meant = nearest(unknown, known)
    error.possibilities = [known[meant]] if meant else error.possibilities


def application(arguments: Sequence[str] = ()) -> typer.Typer:
    """Return the application for a command line: where it begins with a command, that command's module is enough.

    Importing all of them takes longer than most commands. Only the help page, the suggestions for a misspelt command
    and options before a command need them.
    """
    first = arguments[0] if arguments else ""
    if list(arguments) == ["--version"]:
        first = "version"  # the option needs no command; any one is enough
    subjects = [subject for subject, words in SUBJECTS.items() if first in words]
    made = typer.Typer(
        name="myria",
        cls=CodedUsage,
        help="Long-term memory for conversational agents: an append-only event log, compiled into versioned topic "
        "trees, read over MCP.\n\nStart with `myria demo` (a sample conversation, three questions, their answer trees) "
        "or `myria up` (the same without the sample).",
        epilog="Exit status: 0 done · 1 a check failed or a bug · 2 wrong input · 3 not found · 4 the memory's state "
        "forbids it · 5 the database is away (retry) · 6 the set-up needs a person · 7 a build failed · 130 Ctrl-C",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        callback=_everything,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    )
    for subject in subjects or SUBJECTS:
        import_module(f"myria_cli.commands.{subject}").register(made)
    return made


def _everything(
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
    from importlib import metadata  # noqa: PLC0415 - a tenth of a second that only this option needs

    console.out().print(f"myria {metadata.version('myria')}")
    raise typer.Exit
