"""The options that every command takes, and how a command runs: one event loop, one error line, one exit status."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import os
import re
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
import uvloop

from myria.access.tenants import checked_tenant
from myria.errors import ConfigurationError, InternalError, InvalidArgument, MyriaError
from myria_cli import console
from myria_cli.signals import STOPPED_BY_INTERRUPT, STOPPED_BY_TERMINATE

if TYPE_CHECKING:
    from myria.settings import Settings

WHERE = "Where the memory is"

DATA_DIR_VARIABLES = ("MYRIA_DATA_DIR", "DATA_DIR")
"""Both name the data folder. The second is what `make up` takes; any program may have set it: a DSN goes before it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """The common options of one call."""

    dsn: str | None = None
    data_dir: Path | None = None
    tenant: str = "default"
    config: Path | None = None
    json: bool = False
    debug: bool = False

    def settings(self, **overrides: Any) -> Settings:
        """Return the settings of this call; `overrides` are by `section__field`, None meaning "not given".

        Raises:
            ConfigurationError: a setting is wrong, or --dsn and --data-dir were both given.
        """
        from myria.settings import Settings  # noqa: PLC0415 - a third of a second, which help need not take

        if self.dsn is not None and self.data_dir is not None:
            raise ConfigurationError("--dsn and --data-dir name two different places; give one of them")
        values: dict[str, Any] = {key.replace("__", "."): value for key, value in overrides.items()}
        values["postgres.dsn"] = self.dsn
        return Settings.load(self.config, overrides=values)

    @property
    def folder(self) -> Path | None:
        """The data folder that was named, None for the user's own.

        Raises:
            ConfigurationError: the environment names two.
        """
        given = {name: os.path.realpath(text) for name in DATA_DIR_VARIABLES if (text := os.environ.get(name))}
        wanted = self.data_dir or (Path(given["DATA_DIR"]) if "DATA_DIR" in given else None)
        if wanted is not None and len(set(given.values())) > 1 and os.path.realpath(wanted) in given.values():
            both = " and ".join(f"{name}={folder}" for name, folder in given.items())
            raise ConfigurationError(f"{both} name two different data folders; unset one of them")
        return wanted

    def dsn_of(self, settings: Settings) -> str | None:
        """Return the database that was asked for, or None for the data folder's embedded server.

        --data-dir takes precedence over a DSN from the environment or the settings file.
        """
        return self.dsn if self.dsn is not None or self.data_dir is not None else settings.postgres.dsn


@dataclass(frozen=True, slots=True)
class _Common:
    annotation: Any
    default: object


_COMMON: dict[str, _Common] = {
    "dsn": _Common(
        Annotated[
            str | None,
            typer.Option(
                metavar="DSN",
                help="PostgreSQL to use. Default: the data folder's embedded server, found running or started.",
                rich_help_panel=WHERE,
            ),
        ],
        None,
    ),
    "data_dir": _Common(
        Annotated[
            Path | None,
            typer.Option(
                metavar="DIR",
                envvar="MYRIA_DATA_DIR",
                help="Folder of the embedded server. Default: DATA_DIR, else the user's data folder.",
                rich_help_panel=WHERE,
            ),
        ],
        None,
    ),
    "tenant": _Common(
        Annotated[
            str,
            typer.Option(
                metavar="NAME", envvar="MYRIA_TENANT", help="Which memory of the database.", rich_help_panel=WHERE
            ),
        ],
        "default",
    ),
    "config": _Common(
        Annotated[
            Path | None,
            typer.Option(metavar="FILE", envvar="MYRIA_CONFIG", help="YAML file with settings.", rich_help_panel=WHERE),
        ],
        None,
    ),
    "json": _Common(
        Annotated[bool, typer.Option("--json", help="Answer in JSON, for programs.", rich_help_panel="Output")], False
    ),
    "debug": _Common(
        Annotated[bool, typer.Option("--debug", help="Show the Python trace of an error.", rich_help_panel="Output")],
        False,
    ),
}

Command = Callable[..., Coroutine[Any, Any, int | None]]


def command(app: typer.Typer, name: str, *, examples: str = "", panel: str) -> Callable[[Command], Command]:
    """Register an async function as a command: its first argument is `Options`, the rest are its own.

    It returns its exit status (None: 0). A `MyriaError` becomes one line and the error's exit status.
    """

    def register(function: Command) -> Command:
        own = list(inspect.signature(function).parameters.values())[1:]
        hints = get_type_hints(function, include_extras=True)
        parameters = [
            parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in own
        ]
        taken = {parameter.name for parameter in own}
        parameters += [
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=common.default, annotation=common.annotation)
            for key, common in _COMMON.items()
            if key not in taken
        ]

        @functools.wraps(function)
        def call(**values: Any) -> None:
            options = Options(**{key: values.pop(key) for key in _COMMON if key in values and key not in taken})
            status = run(lambda: function(options, **values), options)
            if status:
                raise typer.Exit(status)

        del call.__wrapped__  # otherwise typer would read the inner signature
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        epilog = "Examples:\n\n" + examples.strip() if examples else None
        app.command(name, help=_flowing(function.__doc__ or ""), epilog=epilog, rich_help_panel=panel)(call)
        return function

    return register


def _flowing(text: str) -> str:
    """Return paragraphs without the line breaks they have in the source, which typer keeps in all but the first."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


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
        return await work()

    _log_to_stderr(debug=options.debug)
    try:
        checked_tenant(options.tenant)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(main()) or 0
    except MyriaError as error:
        if options.debug:
            traceback.print_exc()
        console.report(error, as_json=options.json)
        return error.exit_status
    except (KeyboardInterrupt, asyncio.CancelledError):
        status = stopped_by[0] if stopped_by else STOPPED_BY_INTERRUPT
        if status == STOPPED_BY_INTERRUPT:
            console.say("stopped")
        return status
    except ModuleNotFoundError as error:
        if options.debug or (missing := missing_extra(error)) is None:
            raise
        console.report(missing, as_json=options.json)
        return missing.exit_status
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): write nothing more, not even at interpreter exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if options.debug:
            traceback.print_exc()
        refused = InvalidArgument(f"{error.filename}: {error.strerror}") if error.filename else None
        console.report(refused or InternalError(str(error)), as_json=options.json)
        return (refused or InternalError("")).exit_status
    except Exception as error:
        if options.debug:
            raise
        console.report(
            InternalError(f"unexpected {type(error).__name__}: {error}; run again with --debug and report it"),
            as_json=options.json,
        )
        return InternalError.exit_status


def missing_extra(error: ModuleNotFoundError) -> ConfigurationError | None:
    """Return what to install for a module that one of the distribution's extras brings; None for any other."""
    from importlib import metadata  # noqa: PLC0415 - a tenth of a second, which few commands need take

    module = (error.name or "").partition(".")[0].replace("_", "-").lower()
    for requirement in metadata.requires("myria") or ():
        match = re.match(r"""([A-Za-z0-9._-]+).*;.*extra == ['"]([a-z]+)['"]""", requirement)
        if match is not None and match[1].replace("_", "-").lower() == module and match[2] != "dev":
            return ConfigurationError(
                f"this command needs the extra {match[2]}: pip install 'myria[{match[2]}]'", extra=match[2]
            )
    return None


def _log_to_stderr(*, debug: bool) -> None:
    level = logging.DEBUG if debug else logging.WARNING
    logging.basicConfig(level=level, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    for noisy in ("asyncio", "httpx", "httpcore", "mcp"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
