"""`myria connect` and `myria hook`: the memory in the hosts that people have."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from myria.access.principal import API_NAMES
from myria.errors import InvalidArgument
from myria.settings import McpSettings
from myria_cli import console
from myria_cli.hosts import hook as hooking
from myria_cli.hosts.changing import FileChange, carry_out, entry_text, plan_changes
from myria_cli.hosts.known import HOSTS, Host, Server
from myria_cli.options import Options, command

PANEL = "Connect"
_NAMES = ", ".join(HOSTS)

app = typer.Typer(rich_help_panel=PANEL)


@command(app, "connect")
async def connect(
    options: Options,
    *,
    host: Annotated[str, typer.Argument(metavar="HOST", help=f"One of {_NAMES}.")],
    url: Annotated[
        str | None, typer.Option("--url", help="Where the memory is served. Default: the address of `myria up`.")
    ] = None,
    stdio: Annotated[
        bool, typer.Option("--stdio", help="The host starts a server itself, on this machine, instead of HTTP.")
    ] = False,
    face: Annotated[str, typer.Option("--face", help=f"What is offered: {', '.join(API_NAMES)}.")] = "agent",
    key: Annotated[
        str | None,
        typer.Option("--key", envvar="MYRIA_KEY", help="The key, as text in the host's file, which is kept 0600."),
    ] = None,
    key_env: Annotated[
        str | None,
        typer.Option("--key-env", metavar="NAME", help="The variable of the host's environment with the key."),
    ] = None,
    name: Annotated[str, typer.Option("--name", help="What the host calls the server.")] = "myria",
    file: Annotated[
        Path | None, typer.Option("--file", help="Another file than the user's own, e.g. .mcp.json of a project.")
    ] = None,
    hooks: Annotated[
        bool, typer.Option("--hooks", help="Recall when a session begins, and keep each turn, where it has hooks.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take out what was put in.")] = False,
    show: Annotated[bool, typer.Option("--print", help="Print what the host's file takes; write none.")] = False,
    show_key: Annotated[bool, typer.Option("--show-key", help="Do not mask the key in what is printed.")] = False,
) -> None:
    """Add this memory's server to a host's configuration, or take it out again.

    What else is in the file stays, with its comments and order. The first change leaves a copy beside it.

    Examples:
        myria connect claude-code --dry-run
        myria connect claude-code --hooks
        myria connect cursor --key-env MYRIA_KEY --url https://memory.example.com
        myria connect claude-desktop
        myria connect vscode --file .vscode/mcp.json
        myria connect codex --undo
    """
    host_config = _find_host(host)
    if not name or not all(one.isalnum() or one in "_-" for one in name) or not name.isascii():
        raise InvalidArgument("--name takes letters, digits, _ and -", field="name")
    server = _server(options, host_config, url, stdio=stdio, face=face, key=key, key_env=key_env)
    _check_hooks(host_config, server, file, hooks=hooks, undo=undo)
    entry = host_config.written(server)
    servers_file = (file or host_config.file()).expanduser().absolute()
    is_secret = bool(server.env) or (server.key is not None and server.url is not None)
    if show:
        console.write_lines([entry_text(host_config.form, (host_config.group, name), entry, show_key=show_key)])
        return
    changes = plan_changes(
        host_config,
        file=servers_file,
        name=name,
        entry=None if undo else entry,
        hooks_file=host_config.hooks.file() if host_config.hooks and file is None and (hooks or undo) else None,
        command=None if undo else _hook_command(host_config, servers_file, name),
        show_key=show_key,
    )
    if not dry_run:
        for change in changes:
            if change.changes:
                carry_out(change, is_secret=is_secret and change.path == servers_file, keeps_copy=not undo)
    _report_changes(options, host_config, changes, dry_run=dry_run, undo=undo)


@app.command(
    "hook",
    rich_help_panel=PANEL,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
)
def hook(context: typer.Context) -> None:
    """What hosts run when a session begins and after each turn; `myria connect HOST --hooks` sets it up.

    It reads the host's JSON, answers as the host wants it, and ends with 0 whatever happens.
    """
    raise typer.Exit(hooking.main(context.args))


def _find_host(name: str) -> Host:
    host = HOSTS.get(name.strip().lower().replace("_", "-"))
    if host is None:
        raise InvalidArgument(
            f"{console.one_line(name, 60)} is no host that is known; take one of {_NAMES}", field="host"
        )
    return host


def _server(
    options: Options, host: Host, url: str | None, *, stdio: bool, face: str, key: str | None, key_env: str | None
) -> Server:
    """Return the way in which the host will reach the memory: an HTTP address, or a command that it starts."""
    if face not in API_NAMES:
        raise InvalidArgument(f"--face is one of {', '.join(API_NAMES)}", field="face")
    if not host.over_http:
        if url is not None:
            raise InvalidArgument(
                f"{host.title} starts its servers itself; leave --url out, or add the address under its connectors",
                field="url",
            )
        stdio = True
    if stdio:
        if url is not None:
            raise InvalidArgument("--stdio and --url name two different ways; give one of them", field="url")
        # The DSN may hold a password, so it is no argument, which other users can read.
        variables = {} if options.dsn is None else {"MYRIA_POSTGRES_DSN": options.dsn}
        return Server(command=_serve_command(options, face), env=variables)
    if key is not None and key_env is not None:
        raise InvalidArgument("--key and --key-env name two different keys; give one of them", field="key")
    if key_env is not None and not (key_env.isidentifier() and key_env.isascii()):
        raise InvalidArgument("--key-env is the name of a variable, not the key", field="key_env")
    if key is not None and (not key.isascii() or not key.isprintable() or " " in key):
        raise InvalidArgument("--key is no key: it holds spaces or other signs", field="key")
    base = _without_api(url) if url is not None else _own_url(options.settings().mcp)
    path = "/mcp" if face == "core" else f"/mcp/{face}"
    return Server(url=f"{base}{path}", key=key, key_env=key_env)


def _without_api(url: str) -> str:
    """Return an address without the path of an API (/mcp/...), if it has one."""
    if not url.startswith(("http://", "https://")) or not url.isprintable() or any(one in url for one in " ?#\"'"):
        raise InvalidArgument("--url must begin with http:// or https://, without query and spaces", field="url")
    base, mcp, api = url.rstrip("/").partition("/mcp")
    return base if not mcp or api.strip("/") in ("", *API_NAMES) else url.rstrip("/")


def _own_url(mcp: McpSettings) -> str:
    """Return the address of a `myria up` with these settings, for programs on this machine."""
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(mcp.host, f"[{mcp.host}]" if ":" in mcp.host else mcp.host)  # noqa: S104
    return f"{mcp.scheme}://{name}:{mcp.port}"


def _program() -> str:
    """Return this program's absolute path: desktop applications do not have the shell's PATH."""
    beside = Path(sys.executable).with_name("myria.exe" if sys.platform == "win32" else "myria")
    return str(beside) if beside.exists() else shutil.which("myria") or "myria"


def _serve_command(options: Options, face: str) -> tuple[str, ...]:
    """Return the command by which a host starts `myria serve` with the same memory and settings."""
    command = [_program(), "serve", "--stdio", "--face", face]
    if options.folder is not None and options.dsn is None:
        command += ["--data-dir", str(options.folder.expanduser().absolute())]
    if options.config is not None:
        command += ["--config", str(options.config.expanduser().absolute())]
    if options.tenant != "default":
        command += ["--tenant", options.tenant]
    return tuple(command)


def _check_hooks(host: Host, server: Server, file: Path | None, *, hooks: bool, undo: bool) -> None:
    """Refuse --hooks where hooks cannot work."""
    if not hooks or undo:
        return
    if host.hooks is None:
        able = ", ".join(name for name, one in HOSTS.items() if one.hooks is not None)
        raise InvalidArgument(f"{host.title} has no hooks; {able} have", field="hooks")
    if server.url is None:
        raise InvalidArgument("hooks need a server that runs: leave --stdio out", field="hooks")
    if file is not None:
        raise InvalidArgument("hooks go into the user's own files: leave --file out", field="hooks")


def _hook_command(host: Host, servers: Path, name: str) -> str:
    """Return what a host's shell runs. Paths are quoted for either kind of shell."""
    quoted = f'"{_program()}" hook {host.name} --servers "{servers}"'
    return quoted if name == "myria" else f"{quoted} --name {name}"


def _report_changes(options: Options, host: Host, changes: list[FileChange], *, dry_run: bool, undo: bool) -> None:
    """Print the changes of a host's files as a diff, and what was done; with --json, as one document."""
    changing = [change for change in changes if change.changes]
    if options.json:
        files: list[dict[str, Any]] = [
            {
                "file": str(change.path),
                "changes": change.changes,
                "diff": list(change.diff),
                "copy": str(change.copy) if change.copy else None,
            }
            for change in changes
        ]
        console.write_json({"host": host.name, "dry_run": dry_run, "undo": undo, "files": files})
        return
    for change in changing:
        before = "/dev/null" if change.before is None else change.path
        after = "/dev/null" if change.after is None else change.path
        console.write_lines([f"--- {before}", f"+++ {after}", *change.diff])
    if not changing:
        console.say(f"{host.title} {'holds nothing of Myria' if undo else 'is connected already'}; nothing changes.")
    elif dry_run:
        console.say("Nothing was written.")
    else:
        kept = [str(change.copy) for change in changing if change.copy]
        console.say(f"Taken out of {host.title}." if undo else f"Connected {host.title}. {host.next_step}")
        if kept:
            console.say(f"What was there before is in {' and '.join(kept)}.")
