"""The application that `myria` runs: its commands by subject, and what its help says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module, metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from myria.errors import InvalidArgument
from myria.log.synonyms import nearest
from myria_cli import console

MODULES: Mapping[str, tuple[str, ...]] = {
    "planes": ("up", "demo", "serve", "build", "operate"),
    "hosting": ("connect", "hook"),
    "query": ("query",),
    "events": ("events", "import", "export"),
    "builds": ("rebuild", "abort", "publish", "discard", "rollback", "resume"),
    "review": ("review",),
    "snapshots": ("snapshots", "status", "show", "diff"),
    "database": ("migrate", "verify", "version"),
    "erase": ("erase",),
    "audit": ("audit", "feedback", "replay"),
    "secret": ("secret",),
    "cluster": ("smoke", "make-logins", "make-key-secret", "trial-postgres"),
    "tenants": ("tenant",),
    "keys": ("key", "grant"),
    "turns": ("turns",),
}
"""The commands of each module of `myria_cli.commands`, in the order of the help page."""

_UsageError: Any = typer.BadParameter.__base__  # typer brings a click of its own, or uses the other one
"""Arguments that no command takes: unknown, missing, of a wrong form."""


class Commands(Mapping[str, Any]):
    """The commands by name. A module is imported when one of its commands is looked up.

    The help page looks up all of them, so commands import slow libraries (numpy, MCP, Kubernetes) in their own bodies.
    """

    def __init__(self) -> None:
        self._module_of = {name: module for module, names in MODULES.items() for name in names}

    def __getitem__(self, name: str) -> Any:
        return _group(self._module_of[name]).commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._module_of)

    def __len__(self) -> int:
        return len(self._module_of)


@cache
def _group(module: str) -> TyperGroup:
    return typer.main.get_group(import_module(f"myria_cli.commands.{module}").app)


class CodedUsage(TyperGroup):
    """The group of all commands; with --json, it reports wrong arguments as JSON, like every other error."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands: Any = Commands()

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the arguments name."""
        as_json = "--json" in ctx.args
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            _suggest_option(error)
            if not as_json:
                raise
            console.report(InvalidArgument(" ".join(error.format_message().split())), as_json=True)
            raise typer.Exit(InvalidArgument.exit_status) from error


def _suggest_option(error: Any) -> None:
    """Add to the error about an unknown option the known option that is nearest to it."""
    unknown = getattr(error, "option_name", None)
    if unknown is None or error.ctx is None:
        return
    options = [option for parameter in error.ctx.command.params for option in parameter.opts if option[:2] == "--"]
    known = {option.removeprefix("--").replace("-", "_"): option for option in options}
    nearest_name = nearest(unknown, known)
    error.possibilities = [known[nearest_name]] if nearest_name else error.possibilities


def _say_version(is_asked: bool) -> None:
    if is_asked:
        console.write(f"myria {metadata.version('myria')}")
        raise typer.Exit


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
def _everything(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_say_version,
            is_eager=True,
            help="Say which version this is; `myria version` says more.",
        ),
    ] = False,
) -> None:
    """Take what stands before a command."""
