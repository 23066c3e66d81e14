"""`myria key` and `grant`: who may use a memory, and what people have allowed programs to do with their keys."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.panel import Panel
from rich.text import Text

from myria.access.principal import API_NAMES, ROLES, TEXT_FORMATS
from myria.access.secrets import MadeKey, parse_key
from myria.errors import InvalidArgument
from myria_cli import console
from myria_cli.commands.tenants import PANEL, access_store
from myria_cli.options import Options, command

KeyId = Annotated[str, typer.Argument(metavar="KEY_ID", help="The key's public id.")]
GrantId = Annotated[str, typer.Argument(metavar="GRANT_ID", help="The grant's id, as `myria grant list` shows it.")]
Reason = Annotated[str | None, typer.Option(help="Why, for the record.")]
AllTenants = Annotated[bool, typer.Option("--all-tenants", help="Of every tenant, not only --tenant.")]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_SHORT = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhdw])")

app = typer.Typer(rich_help_panel=PANEL)
key = typer.Typer(
    rich_help_panel=PANEL, no_args_is_help=True, help="Who may use a memory: keys, shown once, that can be taken back."
)
grant = typer.Typer(
    rich_help_panel=PANEL,
    no_args_is_help=True,
    help="What people allowed programs to do with their keys (auth.server).",
)
app.add_typer(key, name="key", rich_help_panel=PANEL)
app.add_typer(grant, name="grant", rich_help_panel=PANEL)


@command(key, "create")
async def create(
    options: Options,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What people call it.")],
    *,
    role: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE", help=f"{', '.join(ROLES)}. Repeatable. Default: append, read."),
    ] = None,
    as_: Annotated[
        list[str] | None,
        typer.Option("--as", metavar="PARTICIPANT", help="Who it is: asks and appends always as all of these."),
    ] = None,
    may_ask: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Whom it may add, such as 'user:*'; then every call must name one. Repeatable.",
        ),
    ] = None,
    face: Annotated[
        list[str] | None,
        typer.Option(metavar="FACE", help=f"{', '.join(API_NAMES)}. Repeatable. Default: all but admin."),
    ] = None,
    channel: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Channels it may append to. Repeatable. Default: any."),
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
            metavar="FILE", help="A file that holds the key, myr_<id>_<secret>. A second time, nothing changes."
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

    Examples:
        myria key create ada --as ada --as bot
        myria key create web-host --tenant team-a --role read --role append --may-ask 'user:*' --expires 90d --json
        myria key create ops --role admin --face admin
    """
    from myria.access.store import DEFAULT_FACES, NewKey

    given_key = _read_given_key(key_file, key_env)
    new_key = NewKey(
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
        if new_key.tenant == "default" or given_key is not None:
            await store.ensure_tenant(new_key.tenant)
        if given_key is not None:
            key_row, is_new = await store.ensure_key(new_key, given_key)
            sentence = "this key is known now" if is_new else "this key is known already: nothing changed"
            options.answer(key_row, console.fields(key_row), sentence)
            return
        made_key, key_row = await store.create_key(new_key)
    _hand_over(options, made_key, key_row)


@command(key, "list")
async def list_(options: Options, *, all_tenants: AllTenants = False) -> None:
    """List keys: what each may do, until when, and when it was last used. Never their secrets."""
    async with access_store(options) as store:
        keys = await store.keys(None if all_tenants else options.tenant)
    columns: dict[str, console.Column] = {
        "key": "key_id",
        **{name: name for name in ("name", "tenant", "state", "roles", "as")},
        "may ask": "may_ask",
        "faces": "faces",
        "expires": lambda row: console.to_the_second(row["expires_at"]) or "never",
        "last used": lambda row: console.to_the_second(row["last_used_at"]) or "not yet",
    }
    none_yet = "no keys yet; `myria key create NAME --as PARTICIPANT` makes one"
    options.answer({"keys": keys}, console.table(columns, keys) if keys else none_yet)


@command(key, "show")
async def show(options: Options, key_id: KeyId) -> None:
    """Show what one key may do."""
    async with access_store(options) as store:
        shown = await store.key(_key_id_of(key_id))
    options.answer(shown, console.fields(shown))


@command(key, "rotate")
async def rotate(
    options: Options,
    key_id: KeyId,
    *,
    overlap: Annotated[str, typer.Option(metavar="DURATION", help="How long the old key stays good.")] = "1h",
    reason: Reason = None,
) -> None:
    """Make a new key that may do the same, and let the old one end after an overlap.

    Examples:
        myria key rotate 7hk2m9xq4abc --overlap 24h
    """
    async with access_store(options) as store:
        overlap_s = parse_duration(overlap, "overlap")
        made, shown = await store.rotate_key(_key_id_of(key_id), overlap_s=overlap_s, reason=reason)
    _hand_over(options, made, shown)


@command(key, "revoke")
async def revoke(options: Options, key_id: KeyId, *, reason: Reason = None) -> None:
    """End a key: within a second no process accepts it any more."""
    async with access_store(options) as store:
        shown = await store.revoke_key(_key_id_of(key_id), reason=reason)
    options.answer(shown, console.fields(shown), f"the key {shown['key_id']} is revoked")


@command(grant, "list")
async def list_grants(options: Options, *, all_tenants: AllTenants = False) -> None:
    """List grants: which program may do what with whose key, since when, and until when."""
    async with access_store(options) as store:
        grants = await store.grants(None if all_tenants else options.tenant)
    columns: dict[str, console.Column] = {
        "grant": "grant_id",
        "program": "client",
        "tenant": "tenant",
        "key": "key_id",
        **{name: name for name in ("state", "face", "scopes")},
        "since": lambda row: console.to_the_second(row["created_at"]),
        "last used": lambda row: console.to_the_second(row["last_used_at"]) or "not yet",
        "until": lambda row: console.to_the_second(row["expires_at"]),
    }
    none_yet = "no grants yet; a program asks for one when auth.server is on"
    options.answer({"grants": grants}, console.table(columns, grants) if grants else none_yet)


@command(grant, "show")
async def show_grant(options: Options, grant_id: GrantId) -> None:
    """Show one grant."""
    async with access_store(options) as store:
        shown = await store.grant(grant_id)
    options.answer(shown, console.fields(shown))


@command(grant, "revoke")
async def revoke_grant(options: Options, grant_id: GrantId, *, reason: Reason = None) -> None:
    """End a grant with all its tokens: within a second no process accepts them any more. The key stays good."""
    async with access_store(options) as store:
        ended = await store.revoke_grant(grant_id, reason=reason)
    options.answer(ended, console.fields(ended), f"the grant {grant_id} has ended")


def _hand_over(options: Options, made: MadeKey, shown: dict[str, Any]) -> None:
    """Answer with a new key and its text, which is shown only now."""
    options.answer(
        {"key_id": shown["key_id"], "key": made.text, **shown},
        Panel(Text(made.text, style="bold cyan"), title="The key, shown this once", expand=False),
        console.fields(shown),
        "send it in the header `Authorization: Bearer ...`",
    )


def _read_given_key(key_file: Path | None, key_env: str | None) -> MadeKey | None:
    """Return the key from the file or the environment variable, or None if neither option was given."""
    if key_file is not None and key_env is not None:
        raise InvalidArgument("--key-file and --key-env both give the key; leave one out", field="key-env")
    if key_file is not None:
        try:
            return _parse_given_key(key_file.read_text(encoding="utf-8"), f"the file {key_file}", "key-file")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"the file {key_file} cannot be read: {error}", field="key-file") from error
    if key_env is not None:
        return _parse_given_key(os.environ.get(key_env, ""), f"the variable {key_env}", "key-env")
    return None


def _parse_given_key(text: str, source: str, field: str) -> MadeKey:
    made = parse_key(text.strip())
    if made is None:
        raise InvalidArgument(f"{source} holds no key; it must read myr_<id>_<secret>", field=field)
    return made


def _key_id_of(text: str) -> str:
    """Return the key's id if `text` is a whole key, else `text`, which then is an id."""
    made = parse_key(text)
    return text if made is None else made.key_id


def parse_duration(text: str, field: str) -> float:
    """Parse a length of time as people write it (90s, 30m, 12h, 30d, 8w, or ISO 8601 as P30D); return seconds.

    Raises:
        InvalidArgument: the text is not a length of time.
    """
    from pydantic import TypeAdapter, ValidationError

    if (match := _SHORT.fullmatch(text.strip())) is not None:
        return float(match[1]) * _UNITS[match[2]]
    try:
        if text.startswith("P"):
            return TypeAdapter(timedelta).validate_python(text).total_seconds()
    except (ValidationError, OverflowError):
        pass
    raise InvalidArgument(f"{field} must be a length of time such as 90s, 30m, 12h, 30d, 8w or P30D", field=field)
