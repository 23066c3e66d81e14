"""The options that every command takes, and how a command runs: one event loop, one line per error, one exit status."""

from __future__ import annotations

import asyncio
import gc
import getpass
import inspect
import logging
import os
import re
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
import uvloop
from rich.console import RenderableType

from myria.access.tenants import checked_tenant
from myria.errors import ConfigurationError, InternalError, InvalidArgument, MyriaError
from myria_cli import console

if TYPE_CHECKING:
    from myria.settings import Settings

WHERE = "Where the memory is"

DATA_DIR_VARIABLES = ("MYRIA_DATA_DIR", "DATA_DIR")
"""Both name the data folder. The second is for `make up`; other programs may have set it, so a DSN outranks it."""

Shown = RenderableType | tuple[str, str]
"""What a person reads: a sentence for standard error, alone or with its style, or a table and the like, for standard
output."""

STOPPED_BY_INTERRUPT, STOPPED_BY_TERMINATE = 128 + signal.SIGINT, 128 + signal.SIGTERM


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The common options of one call: each field is an option of every command, declared in typer's way."""

    dsn: Annotated[
        str | None,
        typer.Option(
            metavar="DSN",
            help="PostgreSQL to use. Default: the data folder's embedded server, found running or started.",
            rich_help_panel=WHERE,
        ),
    ] = None
    data_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            envvar="MYRIA_DATA_DIR",
            help="Folder of the embedded server. Default: DATA_DIR, else the user's data folder.",
            rich_help_panel=WHERE,
        ),
    ] = None
    tenant: Annotated[
        str,
        typer.Option(
            metavar="NAME", envvar="MYRIA_TENANT", help="Which memory of the database.", rich_help_panel=WHERE
        ),
    ] = "default"
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", envvar="MYRIA_CONFIG", help="YAML file with settings.", rich_help_panel=WHERE),
    ] = None
    json: Annotated[bool, typer.Option("--json", help="Answer in JSON, for programs.", rich_help_panel="Output")] = (
        False
    )
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the Python trace of an error.", rich_help_panel="Output")
    ] = False

    def settings(self, **overrides: Any) -> Settings:
        """Return the settings of this call; `overrides` are by `section__field`, None meaning "not given".

        Raises:
            ConfigurationError: a setting is wrong, or --dsn and --data-dir were both given.
        """
        from myria.settings import Settings

        if self.dsn is not None and self.data_dir is not None:
            raise ConfigurationError("--dsn and --data-dir name two different places; give one of them")
        values: dict[str, Any] = {key.replace("__", "."): value for key, value in overrides.items()}
        values["postgres.dsn"] = self.dsn
        return Settings.load(self.config, overrides=values)

    @property
    def folder(self) -> Path | None:
        """The data folder that an option or the environment names, None for the user's default folder.

        Raises:
            ConfigurationError: the environment names two.
        """
        folder_of_variable = {
            name: os.path.realpath(text) for name in DATA_DIR_VARIABLES if (text := os.environ.get(name))
        }
        chosen_folder = self.data_dir or (
            Path(folder_of_variable["DATA_DIR"]) if "DATA_DIR" in folder_of_variable else None
        )
        if (
            chosen_folder is not None
            and len(set(folder_of_variable.values())) > 1
            and os.path.realpath(chosen_folder) in folder_of_variable.values()
        ):
            settings_text = " and ".join(f"{name}={folder}" for name, folder in folder_of_variable.items())
            raise ConfigurationError(f"{settings_text} name two different data folders; unset one of them")
        return chosen_folder

    def dsn_of(self, settings: Settings) -> str | None:
        """Return the DSN of the database to use, or None for the data folder's embedded server.

        --data-dir takes precedence over a DSN from the environment or the settings file.
        """
        return self.dsn if self.dsn is not None or self.data_dir is not None else settings.postgres.dsn

    def answer(self, document: Any, *shown: Shown | None) -> None:
        """Write what a command answers: with --json the document, else what a person reads; None is left out."""
        if self.json:
            console.write_json(document)
            return
        for part in shown:
            if isinstance(part, str):
                console.say(part)
            elif isinstance(part, tuple):
                console.say(*part)
            elif part is not None:
                console.write(part)


def actor() -> str:
    """Return the name under which this command's user appears in audit records."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):  # a container's user may have no name
        return "cli"


Command = Callable[..., Coroutine[Any, Any, int | None]]


def command(app: typer.Typer, name: str) -> Callable[[Command], Command]:
    """Register an async function as a command: its first argument is `Options`, the rest are its own.

    It returns its exit status (None: 0). A `MyriaError` becomes one line and the error's exit status. Its docstring is
    the help page, with a section of examples at the end; the panel of the page of all commands is that of `app`.
    """
    common_parameters = inspect.signature(Options).parameters

    def register(function: Command) -> Command:
        hints = {each: get_type_hints(each, include_extras=True) for each in (function, Options)}
        own_parameters = list(inspect.signature(function).parameters.values())[1:]
        parameters = [
            parameter.replace(annotation=hints[source][parameter.name], kind=inspect.Parameter.KEYWORD_ONLY)
            for source, declared in ((function, own_parameters), (Options, common_parameters.values()))
            for parameter in declared
        ]

        def call(**values: Any) -> None:
            options = Options(**{key: values.pop(key) for key in common_parameters})
            if status := run(lambda: function(options, **values), options):
                raise typer.Exit(status)

        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        text, _, examples = inspect.cleandoc(function.__doc__ or "").partition("\n\nExamples:\n")
        epilog = "\n\n".join(["Examples:", *(line.strip() for line in examples.splitlines())]) if examples else None
        # typer keeps the line breaks of the source in all paragraphs but the first
        flowing = "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
        app.command(name, help=flowing, epilog=epilog, rich_help_panel=app.rich_help_panel)(call)
        return function

    return register


def run(work: Callable[[], Awaitable[int | None]], options: Options) -> int:
    """Run a command's coroutine to its end and return the exit status; print its error, if any.

    SIGINT and SIGTERM cancel it, so that what it started is stopped. SIGINT is taken even where the shell that
    started us in the background had it ignored.
    """
    stopped_by: list[int] = []

    async def main() -> int | None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - inside a coroutine

        def stop(status: int) -> None:
            stopped_by.append(status)
            task.cancel()

        loop.add_signal_handler(signal.SIGINT, stop, STOPPED_BY_INTERRUPT)
        loop.add_signal_handler(signal.SIGTERM, stop, STOPPED_BY_TERMINATE)
        loop.call_soon(_collect_cycles)  # when the command waits for the first time, it has imported what it needs
        return await work()

    _log_to_stderr(debug=options.debug)
    try:
        checked_tenant(options.tenant)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(main()) or 0
    except (KeyboardInterrupt, asyncio.CancelledError):
        status = stopped_by[0] if stopped_by else STOPPED_BY_INTERRUPT
        if status == STOPPED_BY_INTERRUPT:
            console.say("stopped")
        return status
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): write nothing more, not even at interpreter exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 - each becomes one coded line, with a trace on request
        if options.debug:
            traceback.print_exc()
        coded = _coded(error)
        console.report(coded, as_json=options.json)
        return coded.exit_status


def _collect_cycles() -> None:
    """Look for reference cycles from now on, but not among what was imported: that would take a tenth of a second."""
    gc.freeze()
    gc.enable()


def _coded(error: Exception) -> MyriaError:
    """Convert any exception into a MyriaError, which has a code and says what to do."""
    if isinstance(error, MyriaError):
        return error
    if isinstance(error, ModuleNotFoundError) and (extra := _extra_with(error.name or "")) is not None:
        return ConfigurationError(f"this command needs the extra {extra}: pip install 'myria[{extra}]'", extra=extra)
    if isinstance(error, OSError):
        return InvalidArgument(f"{error.filename}: {error.strerror}") if error.filename else InternalError(str(error))
    return InternalError(f"unexpected {type(error).__name__}: {error}; run again with --debug and report it")


def _extra_with(module: str) -> str | None:
    """Return the extra of this distribution that installs a module; None if no extra does."""
    package = module.partition(".")[0].replace("_", "-").lower()
    for requirement in metadata.requires("myria") or ():
        match = re.match(r"""([A-Za-z0-9._-]+).*;.*extra == ['"]([a-z]+)['"]""", requirement)
        if match is not None and match[1].replace("_", "-").lower() == package and match[2] != "dev":
            return match[2]
    return None


def _log_to_stderr(*, debug: bool) -> None:
    level = logging.DEBUG if debug else logging.WARNING
    logging.basicConfig(level=level, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    for noisy in ("asyncio", "httpx", "httpcore", "mcp"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
