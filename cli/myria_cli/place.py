"""Where a command's memory lives: a database given by its DSN, or the data folder's embedded server.

An embedded server that already runs is left running; otherwise it is started for the length of the command.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from myria.db import schema
from myria.db.database import Database
from myria.db.options import pool_options
from myria.errors import ConfigurationError
from myria_cli import console
from myria_cli.options import Options
from myria_embedded import EmbeddedPostgres, default_data_dir, ensure_roles, grant_roles, role_dsns
from myria_embedded.locks import FileLock

if TYPE_CHECKING:
    from myria.builds.administration import Administration
    from myria.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """How each plane reaches one database. The connection strings may hold passwords: never print them.

    `name` is what people may see: the data folder, or the database without its password.
    """

    name: str
    serving: str
    building: str
    control: str
    owner: str
    embedded: EmbeddedPostgres | None = None


@asynccontextmanager
async def opened(
    options: Options, settings: Settings, *, create: bool = False, exclusive: bool = False
) -> AsyncIterator[Place]:
    """Open the place of a command for the block.

    Args:
        create: make the data folder's database if there is none, and migrate it. A `--dsn` is never migrated here.
        exclusive: own the data folder (`myria up`): refuse a second one, and stop the server at the end.

    Raises:
        ConfigurationError: nothing is there yet, and `create` is false.
        OperationalError: the data folder or its server is not usable.
    """
    dsn = options.dsn_of(settings)
    if dsn is not None:
        yield Place(name=_without_password(dsn), serving=dsn, building=dsn, control=dsn, owner=dsn)
        return
    server = EmbeddedPostgres(options.folder, exclusive=exclusive, progress=_announce)
    if not create:
        _require_memory(server.data_dir)
    async with server:
        if create:
            dsns = await ensure_roles(server)
            if await schema.pending(dsns.owner):
                await schema.migrate(dsns.owner)
            await grant_roles(server)
        else:
            dsns = role_dsns(server)
        yield Place(
            name=str(server.data_dir),
            serving=dsns.server,
            building=dsns.builder,
            control=dsns.operator,
            owner=dsns.owner,
            embedded=server,
        )


@asynccontextmanager
async def database_of(
    options: Options, plane: Literal["serving", "control", "owner"] = "serving"
) -> AsyncIterator[Database]:
    """Open a command's database with the role of a plane, after checking that its schema is this program's."""
    settings = options.settings()
    async with (
        opened(options, settings) as place,
        Database(getattr(place, plane), pool_options(settings)) as database,
    ):
        await schema.check(database)
        yield database


@asynccontextmanager
async def administration_of(options: Options) -> AsyncIterator[Administration]:
    """Open the builds and snapshots of a command's place."""
    from myria.builds.administration import Administration

    settings = options.settings()
    async with opened(options, settings) as place, Administration(place.serving, settings) as administration:
        yield administration


def data_dir_of(options: Options) -> Path:
    """Return the data folder that a command without --dsn uses."""
    return (options.folder or default_data_dir()).expanduser().absolute()


def has_running_up(place: Place) -> bool:
    """Tell whether a `myria up` owns the data folder, and so runs requested builds; assumed true for a DSN."""
    if place.embedded is None:
        return True
    owner = FileLock(place.embedded.data_dir / "up.lock")
    is_free = owner.try_acquire()
    owner.release()
    return not is_free


def _require_memory(data_dir: Path) -> None:
    if not (data_dir / "postgres").is_dir():
        raise ConfigurationError(
            f"there is no memory in {data_dir} yet; `myria up`, `myria demo` or `myria import` makes one, "
            "or name another place with --data-dir or --dsn",
            data_dir=str(data_dir),
        )


def _announce(step: str) -> None:
    if step != "start PostgreSQL":
        console.say(f"{step} (first run only) ...", "dim")


def _without_password(dsn: str) -> str:
    """Return a connection string without user and password: host, port and database."""
    if "://" not in dsn:
        return "the database given by --dsn"
    location = dsn.split("://", 1)[1]
    return "postgresql://" + location.rpartition("@")[2].split("?")[0]
