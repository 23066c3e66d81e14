"""`myria tenant` and `myria key`: whose memories one database holds, and who may use them."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.panel import Panel
from rich.text import Text

from myria.access.durations import parse_duration
from myria.access.principal import FACES, ROLES, TEXT_FORMATS
from myria.access.secrets import MadeKey, parse_key
from myria.access.store import DEFAULT_FACES, AccessStore, KeyDetails, NewKey
from myria.db import schema
from myria.db.database import Database
from myria.db.options import pool_options
from myria.db.waiting import until_current
from myria.errors import InternalError, InvalidArgument
from myria.settings import Settings
from myria.settings.redaction_kinds import KINDS, Kind
from myria_cli import console, logs
from myria_cli.options import Options, command
from myria_cli.place import opened

PANEL = "Let people in"

KeyId = Annotated[str, typer.Argument(metavar="KEY_ID", help="The key's public id.")]
TenantName = Annotated[str, typer.Argument(metavar="NAME", help="The tenant.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    tenant = typer.Typer(no_args_is_help=True, help="Whose memories this database holds, each apart from the others.")
    key = typer.Typer(no_args_is_help=True, help="Who may use a memory: keys, shown once, that can be taken back.")
    app.add_typer(tenant, name="tenant", rich_help_panel=PANEL)
    app.add_typer(key, name="key", rich_help_panel=PANEL)
    _register_tenant(tenant)
    _register_key(key)


def _register_tenant(app: typer.Typer) -> None:
    @command(app, "create", panel=PANEL, examples="myria tenant create team-a --json")
    async def create(options: Options, name: TenantName) -> None:
        """Make a tenant: a memory of its own, with snapshots, builds and keys of its own."""
        async with access_store(options, create=True) as store:
            tenant = await store.create_tenant(name)
        _show_tenant(
            options, tenant, f"tenant {name} is there; `myria key create NAME --tenant {name}` lets someone in"
        )

    @command(app, "list", panel=PANEL)
    async def list_(options: Options) -> None:
        """List the tenants of this database."""
        async with access_store(options) as store:
            tenants = await store.tenants()
        if options.json:
            console.write_json({"tenants": tenants})
            return
        rows = [
            (
                tenant["tenant"],
                tenant["state"],
                tenant["active_keys"],
                console.to_the_second(tenant["created_at"]),
                tenant["active_snapshot"] or "none yet",
            )
            for tenant in tenants
        ]
        columns = ("tenant", "state", "active keys", "since", "active snapshot")
        console.write(console.table(columns, rows, right=("active keys",)))

    @command(app, "show", panel=PANEL)
    async def show(options: Options, name: TenantName) -> None:
        """Show one tenant."""
        async with access_store(options) as store:
            tenant = await store.tenant(name)
        _show_tenant(options, tenant, None)

    @command(
        app,
        "redact",
        panel=PANEL,
        examples="""
myria tenant redact team-a secret password card email

myria tenant redact team-a --default
""",
    )
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
        """
        if bool(kinds) + nothing + default != 1:
            raise InvalidArgument("name kinds, or say --nothing or --default", field="kinds")
        async with access_store(options) as store:
            tenant = await store.set_redaction(name, None if default else cast("list[Kind]", kinds or []))
        _show_tenant(options, tenant, f"redaction of tenant {name} is set")

    @command(app, "set", panel=PANEL, examples="myria tenant set team-a events_per_s=200 bytes_stored=20GiB")
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
        """Say how much a tenant may use, where that differs from the settings. Holds within five seconds."""
        quotas = _quotas(values)
        async with access_store(options) as store:
            tenant = await store.set_quotas(name, quotas)
        _show_tenant(options, tenant, f"set of tenant {name}: {', '.join(quotas)}")

    @command(app, "suspend", panel=PANEL, examples='myria tenant suspend team-a --reason "unpaid"')
    async def suspend(
        options: Options,
        name: TenantName,
        *,
        reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for the record.")] = None,
    ) -> None:
        """Refuse a tenant's credentials from now on, on every pod within a second. Its data stays."""
        async with access_store(options) as store:
            tenant = await store.suspend_tenant(name, reason)
        _show_tenant(options, tenant, f"tenant {name} is suspended; `myria tenant resume {name}` ends that")

    @command(app, "resume", panel=PANEL)
    async def resume(options: Options, name: TenantName) -> None:
        """Accept a suspended tenant's credentials again."""
        async with access_store(options) as store:
            tenant = await store.resume_tenant(name)
        _show_tenant(options, tenant, f"tenant {name} is active")

    @command(app, "delete", panel=PANEL, examples="myria tenant delete team-a --export team-a.jsonl --confirm team-a")
    async def delete(
        options: Options,
        name: TenantName,
        *,
        confirm: Annotated[
            str | None, typer.Option(metavar="NAME", help="The name once more; without it you are asked.")
        ] = None,
        export: Annotated[
            Path | None, typer.Option("--export", metavar="FILE", help="Where its events are written to first.")
        ] = None,
        no_export: Annotated[bool, typer.Option("--no-export", help="Keep no copy of its events.")] = False,
        withdrawn: Annotated[
            bool, typer.Option("--withdrawn/--no-withdrawn", help="Also what was withdrawn, and the withdrawals.")
        ] = True,
    ) -> None:
        """Remove a tenant and everything it owns, for good; its events are exported first, forgotten ones too.

        From the first moment on nothing is read or written for it. Killed in the middle, the same command goes on.
        """
        if export is not None and no_export:
            raise InvalidArgument("--export and --no-export contradict each other; leave one out", field="no-export")
        if export is not None and export.exists():
            raise InvalidArgument(f"{export} exists already; name a new file", field="export")
        _check_confirmed(name, confirm)
        file = None if no_export else export or _export_file(name)
        answer = await _delete(options, name, file, withdrawn=withdrawn)
        if options.json:
            console.write_json(answer)
            return
        if answer["export"] is not None:
            console.say(f"{answer['events_exported']:,} events are in {answer['export']}")
        console.say(f"tenant {name} is deleted: {sum(answer['removed'].values()):,} rows; nothing of it is left")


def _register_key(app: typer.Typer) -> None:
    @command(
        app,
        "create",
        panel=PANEL,
        examples="""
myria key create ada --as ada --as bot

myria key create web-host --tenant team-a --role read --role append --may-ask 'user:*' --expires 90d --json

myria key create ops --role admin --face admin
""",
    )
    async def create(
        options: Options,
        name: Annotated[str, typer.Argument(metavar="NAME", help="What people call it.")],
        *,
        role: Annotated[
            list[str] | None,
            typer.Option("--role", metavar="ROLE", help=f"{', '.join(ROLES)}. Repeatable. Default: append, read."),
        ] = None,
        as_: Annotated[
            list[str] | None,
            typer.Option("--as", metavar="PARTICIPANT", help="Who it is: asks and appends always as all of these."),
        ] = None,
        may_ask: Annotated[
            list[str] | None,
            typer.Option(
                "--may-ask",
                metavar="PATTERN",
                help="Whom it may add, such as 'user:*'; then every call must name one. Repeatable.",
            ),
        ] = None,
        face: Annotated[
            list[str] | None,
            typer.Option("--face", metavar="FACE", help=f"{', '.join(FACES)}. Repeatable. Default: all but admin."),
        ] = None,
        channel: Annotated[
            list[str] | None,
            typer.Option("--channel", metavar="PATTERN", help="Channels it may append to. Repeatable. Default: any."),
        ] = None,
        rate: Annotated[
            float | None, typer.Option(min=0.001, metavar="PER_S", help="Requests per second, on each process.")
        ] = None,
        concurrency: Annotated[int | None, typer.Option(min=1, help="Requests at once, on each process.")] = None,
        expires: Annotated[
            str | None, typer.Option(metavar="DURATION", help="How long it is good: 12h, 30d, 8w. Default: for ever.")
        ] = None,
        format_: Annotated[
            str | None,
            typer.Option(
                "--format",
                metavar="FORMAT",
                help=f"Text of answers on the agent's face: {', '.join(TEXT_FORMATS)}. Default: what agent.text says.",
            ),
        ] = None,
        description: Annotated[str | None, typer.Option(metavar="TEXT", help="What it is for.")] = None,
        key_file: Annotated[
            Path | None,
            typer.Option(
                metavar="FILE",
                help="A file that holds the key, myr_<id>_<secret>. A second time, nothing changes.",
            ),
        ] = None,
        key_env: Annotated[
            str | None,
            typer.Option(metavar="VARIABLE", help="The environment variable that holds the key, in place of a file."),
        ] = None,
    ) -> None:
        """Make a key, and show it once: only a digest of it is stored.

        What it reads is what its own participants, all of them, may see, and those it names beside them within its
        patterns. A key that is given is not shown, and its tenant is made where there is none.
        """
        given = _given(key_file, key_env)
        new = NewKey(
            name=name,
            tenant=options.tenant,
            roles=tuple(role or ("append", "read")),  # type: ignore[arg-type]
            faces=tuple(face or DEFAULT_FACES),  # type: ignore[arg-type]
            own=tuple(as_ or ()),
            may_ask=tuple(may_ask or ()),
            channels=None if channel is None else tuple(channel),
            requests_per_s=rate,
            concurrency=concurrency,
            text_format=format_,  # type: ignore[arg-type]
            expires_s=None if expires is None else parse_duration(expires, "expires"),
            description=description,
        ).checked()
        async with access_store(options, create=True) as store:
            if new.tenant == "default" or given is not None:
                await store.ensure_tenant(new.tenant)
            if given is not None:
                details, is_new = await store.ensure_key(new, given, actor=_whoami())
                sentence = "this key is known now" if is_new else "this key is known already: nothing changed"
                _show_key(options, details, sentence)
                return
            made, details = await store.create_key(new, actor=_whoami())
        _hand_over(options, made, details)

    @command(app, "list", panel=PANEL)
    async def list_(
        options: Options,
        *,
        all_tenants: Annotated[bool, typer.Option("--all-tenants", help="Of every tenant, not only --tenant.")] = False,
    ) -> None:
        """List keys: what each may do, until when, and when it was last used. Never their secrets."""
        async with access_store(options) as store:
            keys = [details.to_json() for details in await store.keys(None if all_tenants else options.tenant)]
        if options.json:
            console.write_json({"keys": keys})
            return
        if not keys:
            console.say("no keys yet; `myria key create NAME --as PARTICIPANT` makes one")
            return
        rows = [
            (
                key["key_id"],
                key["name"],
                key["tenant"],
                key["state"],
                *(", ".join(key[field]) for field in ("roles", "as", "may_ask", "faces")),
                console.to_the_second(key["expires_at"]) or "never",
                console.to_the_second(key["last_used_at"]) or "not yet",
            )
            for key in keys
        ]
        columns = ("key", "name", "tenant", "state", "roles", "as", "may ask", "faces", "expires", "last used")
        console.write(console.table(columns, rows))

    @command(app, "show", panel=PANEL)
    async def show(options: Options, key_id: KeyId) -> None:
        """Show what one key may do."""
        async with access_store(options) as store:
            details = await store.key(_id_of(key_id))
        _show_key(options, details, None)

    @command(app, "rotate", panel=PANEL, examples="myria key rotate 7hk2m9xq4abc --overlap 24h")
    async def rotate(
        options: Options,
        key_id: KeyId,
        *,
        overlap: Annotated[str, typer.Option(metavar="DURATION", help="How long the old key stays good.")] = "1h",
    ) -> None:
        """Make a new key that may do the same, and let the old one end after an overlap."""
        async with access_store(options) as store:
            made, details = await store.rotate_key(
                _id_of(key_id), overlap_s=parse_duration(overlap, "overlap"), actor=_whoami()
            )
        _hand_over(options, made, details)

    @command(app, "revoke", panel=PANEL)
    async def revoke(options: Options, key_id: KeyId) -> None:
        """End a key: within a second no process accepts it any more."""
        async with access_store(options) as store:
            details = await store.revoke_key(_id_of(key_id))
        _show_key(options, details, f"the key {details.row['key_id']} is revoked")


async def _delete(options: Options, name: str, file: Path | None, *, withdrawn: bool) -> dict[str, Any]:
    """Stop a tenant, export it into a file unless that is None, remove it, and prove that nothing is left."""
    from myria.builds.snapshots import Registry  # noqa: PLC0415
    from myria.erasure.tenants import TenantDeletion  # noqa: PLC0415 - these take long to import, and help need not
    from myria_cli.exporting import write_export  # noqa: PLC0415

    settings = options.settings()
    async with (
        opened(options, settings) as place,
        Database(place.control, pool_options(settings, size=2)) as database,
    ):
        await schema.check(database)
        deletion = TenantDeletion(database, Registry(database, settings), name, actor=_whoami())
        is_whole = await deletion.stop()
        exported = None
        if file is not None and is_whole:
            exported = await write_export(database, name, str(file), withdrawn=withdrawn)
        elif file is not None:
            console.say("an earlier deletion removed a part of it already: what is left is not exported", "yellow")
        with console.meter("removing rows", None) as progress:
            removed = await deletion.remove(on_progress=lambda rows: progress.advance(rows.total()))
        if remains := await deletion.remains():
            raise InternalError(f"rows of tenant {name} are left in {', '.join(remains)}; delete it again")
    return {
        "tenant": name,
        "state": "deleted",
        "export": None if exported is None else str(file),
        "events_exported": exported,
        "removed": dict(removed),
    }


def _check_confirmed(name: str, confirm: str | None) -> None:
    """Let somebody name the tenant again.

    Raises:
        InvalidArgument: another name was given, or none and nobody can be asked.
    """
    if confirm is None:
        if not sys.stdin.isatty():
            raise InvalidArgument(f"deleting cannot be undone; confirm it with --confirm {name}", field="confirm")
        confirm = typer.prompt(f"This removes all of tenant {name}. Its name, to confirm", err=True)
    if confirm != name:
        raise InvalidArgument(
            f"the confirmation names another tenant; nothing was changed: write {name}", field="confirm"
        )


_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def _quotas(values: list[str]) -> dict[str, float | None]:
    """Return the amounts of `QUOTA=AMOUNT...` by quota, None for those of the settings.

    Raises:
        InvalidArgument: not an amount.
    """
    quotas: dict[str, float | None] = {}
    for text in values:
        key, _, value = text.partition("=")
        factor = _UNITS.get(value[-3:]) if key == "bytes_stored" else None
        try:
            amount = float(value if factor is None else value[:-3])
            quotas[key] = amount if factor is None else amount * factor
        except ValueError as error:
            if value != "default":
                raise InvalidArgument(
                    f"{key} must be given as {key}=NUMBER, or {key}=default", field=key or "key"
                ) from error
            quotas[key] = None
    return quotas


def _limits(settings: Settings, tenant: dict[str, Any]) -> dict[str, Any]:
    """Return what holds for a tenant: its own quotas, else those of the settings; None for no limit."""
    of_settings = {
        "events_per_s": settings.auth.tenant_events_per_s,
        "bytes_stored": settings.auth.tenant_bytes_stored,
        "concurrent_builds": 1,
        "model_tokens_per_day": settings.llm.tenant_tokens_per_day,
    }
    return {quota: most if tenant[quota] is None else tenant[quota] for quota, most in of_settings.items()}


def _export_file(name: str) -> Path:
    return Path(f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.jsonl")


@asynccontextmanager
async def access_store(options: Options, *, create: bool = False) -> AsyncIterator[AccessStore]:
    """Open the tenants and keys of a command's place; a schema that is on its way is awaited (`migrate.wait_s`)."""
    settings = options.settings()
    async with (
        opened(options, settings, create=create) as place,
        Database(place.control, pool_options(settings, size=1)) as database,
    ):
        if settings.migrate.wait_s:
            logs.configure(settings.service, "key", settings.log)
            await until_current(database, settings.migrate.wait_s)
        yield AccessStore(database, actor=_whoami())


def created_json(made: MadeKey, details: KeyDetails) -> dict[str, Any]:
    """Return what `myria key create` answers a program: all there is to know, with the key's text."""
    shown = details.to_json()
    return {"key_id": shown.pop("key_id"), "key": made.text, **shown}


def _hand_over(options: Options, made: MadeKey, details: KeyDetails) -> None:
    if options.json:
        console.write_json(created_json(made, details))
        return
    console.write(Panel(Text(made.text, style="bold cyan"), title="The key, shown this once", expand=False))
    _show_key(options, details, "send it in the header `Authorization: Bearer ...`")


def _show_key(options: Options, details: KeyDetails, sentence: str | None) -> None:
    if options.json:
        console.write_json(details.to_json())
        return
    console.write_fields(details.to_json())
    if sentence is not None:
        console.say(sentence)


def _show_tenant(options: Options, tenant: dict[str, Any], sentence: str | None) -> None:
    limits = _limits(options.settings(), tenant)
    if options.json:
        console.write_json({**tenant, "limits": limits})
        return
    use = tenant["use"]
    shown = {name: value for name, value in tenant.items() if name not in {*limits, "use"}}
    for quota, most in limits.items():
        limit = "no limit" if most is None else f"{most:,g}" if isinstance(most, float) else f"{most:,}"
        if quota not in use:
            shown[quota] = limit
        else:
            shown[quota] = f"{use[quota]:,}, {limit}" if most is None else f"{use[quota]:,} of {limit}"
    console.write_fields(shown)
    if sentence is not None:
        console.say(sentence)


def _given(key_file: Path | None, key_env: str | None) -> MadeKey | None:
    """Return the key that a file or a variable holds, or None where neither was named."""
    if key_file is not None and key_env is not None:
        raise InvalidArgument("--key-file and --key-env both give the key; leave one out", field="key-env")
    if key_file is not None:
        try:
            return _parsed(key_file.read_text(encoding="utf-8"), f"the file {key_file}", "key-file")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"the file {key_file} cannot be read: {error}", field="key-file") from error
    if key_env is not None:
        return _parsed(os.environ.get(key_env, ""), f"the variable {key_env}", "key-env")
    return None


def _parsed(text: str, source: str, field: str) -> MadeKey:
    made = parse_key(text.strip())
    if made is None:
        raise InvalidArgument(f"{source} holds no key; it must read myr_<id>_<secret>", field=field)
    return made


def _id_of(text: str) -> str:
    """Return a key's id, also where somebody gave the whole key."""
    made = parse_key(text)
    return text if made is None else made.key_id


def _whoami() -> str:
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        return "cli"
