"""`myria tenant`: whose memories one database holds, each apart from the others."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from myria.db.database import Database
from myria.db.options import pool_options
from myria.errors import InternalError, InvalidArgument
from myria.settings.database import KINDS, Kind
from myria_cli import console, logs
from myria_cli.options import Options, actor, command
from myria_cli.place import database_of, opened

if TYPE_CHECKING:
    from myria.access.store import AccessStore
    from myria.settings import Settings

PANEL = "Let people in"

TenantName = Annotated[str, typer.Argument(metavar="NAME", help="The tenant.")]

_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

app = typer.Typer(rich_help_panel=PANEL)
tenant = typer.Typer(
    rich_help_panel=PANEL, no_args_is_help=True, help="Whose memories this database holds, each apart from the others."
)
app.add_typer(tenant, name="tenant", rich_help_panel=PANEL)


@asynccontextmanager
async def access_store(options: Options, *, create: bool = False) -> AsyncIterator[AccessStore]:
    """Open the tenants, keys and grants of a place; a schema that is on its way is awaited (`migrate.wait_s`)."""
    from myria.access.store import AccessStore
    from myria.db.schema import until_current

    settings = options.settings()
    async with (
        opened(options, settings, create=create) as place,
        Database(place.control, pool_options(settings, size=1)) as database,
    ):
        if settings.migrate.wait_s:
            logs.configure(settings.service, "key", settings.log)
        await until_current(database, settings.migrate.wait_s)
        yield AccessStore(database, actor=actor())


@command(tenant, "create")
async def create(options: Options, name: TenantName) -> None:
    """Make a tenant: a memory of its own, with snapshots, builds and keys of its own.

    Examples:
        myria tenant create team-a --json
    """
    async with access_store(options, create=True) as store:
        made = await store.create_tenant(name)
    _show(options, made, f"tenant {name} is there; `myria key create NAME --tenant {name}` lets someone in")


@command(tenant, "list")
async def list_(options: Options) -> None:
    """List the tenants of this database."""
    async with access_store(options) as store:
        tenants = await store.tenants()
    columns: dict[str, console.Column] = {
        "tenant": "tenant",
        "state": "state",
        "active keys": "active_keys",
        "since": lambda row: console.to_the_second(row["created_at"]),
        "active snapshot": lambda row: row["active_snapshot"] or "none yet",
    }
    options.answer({"tenants": tenants}, console.table(columns, tenants, right=("active keys",)))


@command(tenant, "show")
async def show(options: Options, name: TenantName) -> None:
    """Show one tenant."""
    async with access_store(options) as store:
        _show(options, await store.tenant(name))


@command(tenant, "redact")
async def redact(
    options: Options,
    name: TenantName,
    kinds: Annotated[list[str] | None, typer.Argument(metavar="[KIND]...", help=f"{', '.join(KINDS)}.")] = None,
    *,
    nothing: Annotated[bool, typer.Option("--nothing", help="Nothing is taken out.")] = False,
    default: Annotated[bool, typer.Option("--default", help="What redaction.kinds says.")] = False,
) -> None:
    """Say what is taken out of a tenant's payloads before they are stored. Holds within five seconds.

    What is stored already stays as it is.

    Examples:
        myria tenant redact team-a secret password card email
        myria tenant redact team-a --default
    """
    if bool(kinds) + nothing + default != 1:
        raise InvalidArgument("name kinds, or say --nothing or --default", field="kinds")
    async with access_store(options) as store:
        changed = await store.set_redaction(name, None if default else cast("list[Kind]", kinds or []))
    _show(options, changed, f"redaction of tenant {name} is set")


@command(tenant, "set")
async def set_(
    options: Options,
    name: TenantName,
    values: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=VALUE...",
            help="events_per_s: events it may append per second to each process. bytes_stored: bytes of payloads "
            "(`20GiB`). model_tokens_per_day: tokens of language models. concurrent_builds: 0 or 1. `default` for "
            "what the settings say.",
        ),
    ],
) -> None:
    """Say how much a tenant may use, where that differs from the settings. Holds within five seconds.

    Examples:
        myria tenant set team-a events_per_s=200 bytes_stored=20GiB
    """
    quotas = dict(map(_quota, values))
    async with access_store(options) as store:
        changed = await store.set_quotas(name, quotas)
    _show(options, changed, f"set of tenant {name}: {', '.join(quotas)}")


@command(tenant, "suspend")
async def suspend(
    options: Options,
    name: TenantName,
    *,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for the record.")] = None,
) -> None:
    """Refuse a tenant's credentials from now on, on every pod within a second. Its data stays.

    Examples:
        myria tenant suspend team-a --reason "unpaid"
    """
    async with access_store(options) as store:
        changed = await store.suspend_tenant(name, reason)
    _show(options, changed, f"tenant {name} is suspended; `myria tenant resume {name}` ends that")


@command(tenant, "resume")
async def resume(options: Options, name: TenantName) -> None:
    """Accept a suspended tenant's credentials again."""
    async with access_store(options) as store:
        changed = await store.resume_tenant(name)
    _show(options, changed, f"tenant {name} is active")


@command(tenant, "delete")
async def delete(
    options: Options,
    name: TenantName,
    *,
    confirm: Annotated[
        str | None, typer.Option(metavar="NAME", help="The name once more; without it you are asked.")
    ] = None,
    export: Annotated[Path | None, typer.Option(metavar="FILE", help="Where its events are written to first.")] = None,
    no_export: Annotated[bool, typer.Option("--no-export", help="Keep no copy of its events.")] = False,
    withdrawn: Annotated[
        bool, typer.Option("--withdrawn/--no-withdrawn", help="Also what was withdrawn, and the withdrawals.")
    ] = True,
) -> None:
    """Remove a tenant and everything it owns, for good; its events are exported first, forgotten ones too.

    From the first moment on nothing is read or written for it. Killed in the middle, the same command goes on.

    Examples:
        myria tenant delete team-a --export team-a.jsonl --confirm team-a
    """
    from myria.builds.snapshots import Registry
    from myria.erasure.tenants import TenantDeletion
    from myria_cli.exporting import write_export

    if export is not None and no_export:
        raise InvalidArgument("--export and --no-export contradict each other; leave one out", field="no-export")
    if export is not None and export.exists():
        raise InvalidArgument(f"{export} exists already; name a new file", field="export")
    _check_confirmed(name, confirm)
    file = export or Path(f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.jsonl")
    exported = None
    async with database_of(options, "control") as database:
        deletion = TenantDeletion(database, Registry(database, options.settings()), name, actor=actor())
        # Bars the tenant from now on; an earlier attempt may have removed rows already.
        is_whole = await deletion.stop()
        if is_whole and not no_export:
            exported = await write_export(database, name, str(file), withdrawn=withdrawn)
        elif not no_export:
            console.say("an earlier deletion removed a part of it already: what is left is not exported", "yellow")
        with console.meter("removing rows") as progress:
            removed = await deletion.remove(on_progress=lambda rows: progress.advance(rows.total()))
        if remains := await deletion.remains():
            raise InternalError(f"rows of tenant {name} are left in {', '.join(remains)}; delete it again")
    options.answer(
        {
            "tenant": name,
            "state": "deleted",
            "export": None if exported is None else str(file),
            "events_exported": exported,
            "removed": dict(removed),
        },
        None if exported is None else f"{exported:,} events are in {file}",
        f"tenant {name} is deleted: {removed.total():,} rows; nothing of it is left",
    )


def _check_confirmed(name: str, confirm: str | None) -> None:
    """Check that a deletion is confirmed by the tenant's name; ask for the name if `confirm` is None."""
    if confirm is None:
        if not sys.stdin.isatty():
            raise InvalidArgument(f"deleting cannot be undone; confirm it with --confirm {name}", field="confirm")
        confirm = typer.prompt(f"This removes all of tenant {name}. Its name, to confirm", err=True)
    if confirm != name:
        raise InvalidArgument(
            f"the confirmation names another tenant; nothing was changed: write {name}", field="confirm"
        )


def _quota(text: str) -> tuple[str, float | None]:
    """Parse `QUOTA=AMOUNT` into name and amount; an amount of None means the settings' default."""
    key, _, value = text.partition("=")
    if value == "default":
        return key, None
    factor = _UNITS.get(value[-3:]) if key == "bytes_stored" else None
    try:
        return key, float(value) if factor is None else float(value[:-3]) * factor
    except ValueError as error:
        raise InvalidArgument(f"{key} must be given as {key}=NUMBER, or {key}=default", field=key or "key") from error


def _limits(settings: Settings, row: dict[str, Any]) -> dict[str, Any]:
    """Return a tenant's effective limits: its own quotas, else the settings'; None means no limit."""
    default_limits = {
        "events_per_s": settings.auth.tenant_events_per_s,
        "bytes_stored": settings.auth.tenant_bytes_stored,
        "concurrent_builds": 1,
        "model_tokens_per_day": settings.llm.tenant_tokens_per_day,
    }
    return {
        quota: default_limit if row[quota] is None else row[quota] for quota, default_limit in default_limits.items()
    }


def _show(options: Options, row: dict[str, Any], sentence: str | None = None) -> None:
    """Answer with a tenant's row; for people, each quota becomes "use of limit"."""
    limits = _limits(options.settings(), row)
    use = row["use"]
    shown = {name: value for name, value in row.items() if name not in {*limits, "use"}}
    for quota, most in limits.items():
        limit = "no limit" if most is None else f"{most:,g}" if isinstance(most, float) else f"{most:,}"
        if quota in use:
            limit = f"{use[quota]:,}, {limit}" if most is None else f"{use[quota]:,} of {limit}"
        shown[quota] = limit
    options.answer({**row, "limits": limits}, console.fields(shown), sentence)
