"""`myria secret`: secrets that are sent as they are, such as keys of providers, sealed at rest."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from myria.access.vault import MOST_BYTES, Vault
from myria.errors import InvalidArgument
from myria_cli import console
from myria_cli.commands.database import PANEL
from myria_cli.options import Options, command

app = typer.Typer(rich_help_panel=PANEL)
secret = typer.Typer(
    rich_help_panel=PANEL,
    help="Secrets that are sent as they are, sealed at rest: templates of requests name them as ${secret:NAME}.",
    no_args_is_help=True,
)
app.add_typer(secret, name="secret", rich_help_panel=PANEL)


@command(secret, "set")
async def set_(
    options: Options,
    *,
    name: Annotated[str, typer.Argument(help="How a template names it.")],
    from_env: Annotated[str | None, typer.Option(metavar="VARIABLE", help="Take the value of this variable.")] = None,
    from_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Take the text of this file.")] = None,
) -> None:
    """Keep a secret of the tenant, or replace it. Its value comes from standard input unless an option says more.

    It is no argument, as every process of the machine may read those. Programs that run take it up when they start
    the next time.

    Examples:
        myria secret set openrouter < key.txt
        myria secret set openrouter --from-env OPENROUTER_API_KEY
    """
    kept = _vault(options).keep(options.tenant, name, _value(from_env, from_file))
    options.answer(kept.to_listing(), f"the secret {name} is kept")


@command(secret, "list")
async def list_(options: Options) -> None:
    """List the secrets of all tenants by name, without their values. All must open under the master key.

    Examples:
        myria secret list --json
    """
    vault = _vault(options)
    vault.opened()
    listed = [each.to_listing() for each in vault.sealed()]
    columns: dict[str, console.Column] = {
        "tenant": "tenant",
        "name": "name",
        "master key": "key_id",
        "since": "kept_at",
    }
    options.answer({"secrets": listed}, console.table(columns, listed))


@command(secret, "rm")
async def rm(options: Options, *, name: Annotated[str, typer.Argument(help="Which.")]) -> None:
    """Take a secret of the tenant out, also one that cannot be opened any more.

    Examples:
        myria secret rm openrouter
    """
    _vault(options).remove(options.tenant, name)
    options.answer({"tenant": options.tenant, "name": name, "removed": True}, f"the secret {name} is gone")


@command(secret, "rekey")
async def rekey(options: Options) -> None:
    """Seal all secrets anew under the first master key.

    To change the key: put a new one before the old one, separated by a comma or a line end, wherever Myria runs;
    run this; then take the old one away. Nothing has to stop for it.

    Examples:
        myria secret rekey
    """
    moved = _vault(options).rekey()
    options.answer({"rekeyed": moved}, f"{moved} secrets were under another key; all are under the first one now")


def _vault(options: Options) -> Vault:
    return Vault.configured(options.settings().secrets)


def _value(from_env: str | None, from_file: Path | None) -> str:
    """Return a secret's value from the variable, or from the file or standard input without the last line end."""
    if from_env is not None and from_file is not None:
        raise InvalidArgument("--from-env and --from-file both give the value; leave one out", field="from-file")
    if from_env is not None:
        if from_env not in os.environ:
            raise InvalidArgument(f"there is no variable {from_env}", field="from-env")
        return os.environ[from_env]
    most = MOST_BYTES + 3  # with a line end, one byte more than a secret may have: the vault refuses it
    try:
        if from_file is None:
            raw = sys.stdin.buffer.read(most)
        else:
            with from_file.open("rb") as opened:
                raw = opened.read(most)
        return raw.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise InvalidArgument("the value is no text in UTF-8", field="value") from None
