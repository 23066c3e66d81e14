"""`myria smoke`, `make-logins`, `make-key-secret` and `trial-postgres`: what the chart's own pods run."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import quote

import typer

from myria.db.database import Database
from myria.db.options import pool_options
from myria.errors import ConfigurationError, InvalidArgument, MyriaError
from myria_cli import console, logs
from myria_cli.options import Options, command
from myria_cli.place import data_dir_of

if TYPE_CHECKING:
    from myria.settings import Settings
    from myria_embedded.trial import TrialLogin

PANEL = "On Kubernetes"
PLANES = ("SERVER", "OPERATOR", "BUILDER")

_BUILDS_END_S: Final = 25.0
"""Seconds for which the trial's PostgreSQL outlives an order to end, so that the operator can end builds in it."""
_LOOK_S: Final = 0.5

Namespace = Annotated[str | None, typer.Option(help="The installation's namespace. Default: the pod's.")]

app = typer.Typer(rich_help_panel=PANEL)


@command(app, "smoke")
async def smoke(
    options: Options,
    *,
    url: Annotated[str, typer.Option(metavar="URL", help="Where MCP is served.")],
    build: Annotated[bool, typer.Option("--build/--no-build", help="Ask for a build, and wait for it.")] = True,
    in_console: Annotated[bool, typer.Option("--console", help="Look for it in the console, too.")] = False,
    timeout: Annotated[float, typer.Option(min=1, metavar="SECONDS", help="Time for everything together.")] = 300.0,
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", envvar="MYRIA_KEY", help="The key the server asks for.", show_envvar=True),
    ] = None,
) -> None:
    """Go once through a running memory: append an event, rebuild, find it again. Exit 0 when all of it works.

    The event belongs to the participant `myria-smoke` alone, or with a key to the key's own participants, and
    stays in the log. A rebuild needs a key with the role and the face admin.

    Examples:
        myria smoke --url http://127.0.0.1:8321/mcp
        myria smoke --url http://myria.memory:8321/mcp --no-build
    """
    from myria_cli.smoke import smoke as go_through

    def tell(sentence: str) -> None:
        if not options.json:
            console.say(sentence, "dim")

    passed = await go_through(url, build=build, timeout_s=timeout, tell=tell, key=key or None, console=in_console)
    options.answer(passed, "passed")


@command(app, "make-logins")
async def make_logins(
    options: Options,
    *,
    logins: Annotated[list[str], typer.Argument(metavar="SECRET=ROLE", help="Which Secret is for which role.")],
    host: Annotated[str, typer.Option(help="Where PostgreSQL is.")],
    port: Annotated[int, typer.Option(min=1, max=65535)] = 5432,
    database: Annotated[str, typer.Option(metavar="NAME")] = "myria",
    label: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A label of the Secrets.")] = None,
    namespace: Namespace = None,
) -> None:
    """Make the Secrets with which roles log in, with random passwords: username, password and dsn.

    A Secret that is there already is left as it is.

    Examples:
        myria make-logins --host db --database myria login-server=myria_server login-builder=myria_builder
    """
    from myria_operator.cluster_secrets import make_logins

    settings = options.settings(operator__namespace=namespace)
    role_of_secret = dict(map(_pair, logins))
    labels = dict(map(_pair, label or ()))
    new_secrets = await make_logins(
        role_of_secret, host=host, port=port, database=database, labels=labels, namespace=settings.operator.namespace
    )
    existing = len(role_of_secret) - len(new_secrets)
    existing_text = f"; {existing} were there already" if existing else ""
    options.answer({"made": new_secrets}, f"made {', '.join(new_secrets) or 'none'}{existing_text}")


@command(app, "make-key-secret")
async def make_key_secret(
    options: Options,
    *,
    secret: Annotated[str, typer.Argument(metavar="SECRET", help="The Secret's name.")],
    field: Annotated[str, typer.Option(metavar="NAME", help="The field of its data that holds the key.")] = "key",
    label: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A label of the Secret.")] = None,
    namespace: Namespace = None,
) -> None:
    """Make a Secret with a new random key; nobody knows the key yet.

    `myria key create NAME --key-env VARIABLE` makes it known to the database. A Secret that is there already is
    left as it is.

    Examples:
        myria make-key-secret myria-admin-key --label app.kubernetes.io/name=myria
    """
    from myria_operator.cluster_secrets import make_key_secret

    settings = options.settings(operator__namespace=namespace)
    labels = dict(map(_pair, label or ()))
    made = await make_key_secret(secret, field=field, labels=labels, namespace=settings.operator.namespace)
    sentence = f"made {secret}, with a new key" if made else f"{secret} was there already"
    options.answer({"secret": secret, "made": made}, sentence)


@command(app, "trial-postgres")
async def trial_postgres(
    options: Options,
    *,
    port: Annotated[int, typer.Option(min=1, max=65535, help="TCP port, of every address.")] = 5432,
) -> None:
    """Run a PostgreSQL for trying Myria out, which pods reach over the network; not for production.

    Its roles come from the connection strings in MIGRATE_DSN (the owner), SERVER_DSN, OPERATOR_DSN and BUILDER_DSN.

    Examples:
        myria trial-postgres --data-dir /var/lib/myria/data --port 5432
    """
    from myria_embedded.trial import trial_server

    settings = options.settings()
    logs.configure(settings.service, "trial-postgres", settings.log)
    log = logging.getLogger("myria.trial")
    owner, *others = (_login(f"{plane}_DSN") for plane in ("MIGRATE", *PLANES))

    def progress(step: str) -> None:
        log.info("%s", step, extra={"action": "trial_starting"})

    async with trial_server(data_dir_of(options), port, owner=owner, others=others, progress=progress) as server:
        log.warning(
            "PostgreSQL for trial is ready on port %d: no replica, no backup", port, extra={"action": "trial_ready"}
        )
        try:
            await server.supervise()
        finally:
            # An uninstall stops this pod and the operator at once, and the operator ends builds in this database.
            await _until_builds_have_ended(
                settings,
                _login("OPERATOR_DSN"),
                port,
                lambda step: log.info("waiting: %s", step, extra={"action": "trial_ending"}),
            )


async def _until_builds_have_ended(
    settings: Settings, login: TrialLogin, port: int, progress: Callable[[str], None]
) -> None:
    """Wait while builds are unfinished, or an operator still writes down that it ended them; at most `_BUILDS_END_S`.

    A database that does not answer is not waited for.

    Args:
        progress: called with what is waited for, whenever that changes.
    """
    from myria_operator.ledger import Ledger

    user = f"{quote(login.role, safe='')}:{quote(login.password, safe='')}"
    dsn = f"postgresql://{user}@127.0.0.1:{port}/{quote(login.database, safe='')}"  # the Service may be gone
    with contextlib.suppress(MyriaError, TimeoutError):
        async with asyncio.timeout(_BUILDS_END_S), Database(dsn, pool_options(settings, size=1)) as database:
            ledger, told = Ledger(database, settings), ""
            while (unfinished := len(await ledger.unfinished())) or await ledger.is_ending():
                step = f"{unfinished} builds are unfinished" if unfinished else "the operator writes down what it ended"
                if step != told:
                    progress(step)
                told = step
                await asyncio.sleep(_LOOK_S)


def _pair(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not (key and separator and value):
        raise InvalidArgument(f"{text!r} is not of the form NAME=VALUE")
    return key, value


def _login(variable: str) -> TrialLogin:
    from myria_embedded.trial import TrialLogin

    dsn = os.environ.get(variable)
    if not dsn:
        raise ConfigurationError(f"{variable} is not set; it holds the connection string of a role", field=variable)
    return TrialLogin.of(dsn, variable)
