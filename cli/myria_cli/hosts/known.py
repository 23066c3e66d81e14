"""The hosts that can be connected: where each keeps its MCP servers and its hooks, and in what form."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Json = dict[str, Any]
Form = Literal["json", "toml"]

HOOK_TIMEOUT_S = 10
"""Seconds after which a host ends a hook. Our hook ends by itself before that."""

START_TIMEOUT_S = 60
"""Seconds in which a server that Codex starts must be ready. Its default of ten is short for a first PostgreSQL."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """How a host reaches the memory: over HTTP at `url`, or by starting `command` with the variables `env`.

    A key for HTTP is given as text (`key`), or as the environment variable that holds it (`key_env`).
    """

    url: str | None = None
    key: str | None = None
    key_env: str | None = None
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Hooks:
    """Where a host keeps its hooks, and at which events they run.

    `written` makes, from a command, the element of an event's list that runs it. `version` is the format version that
    the file must have, None if it needs none.
    """

    file: Callable[[], Path]
    events: tuple[str, ...]
    written: Callable[[str], Json]
    version: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """A program that hosts agents. `group` is the member of its file that holds the servers by name."""

    name: str
    title: str
    file: Callable[[], Path]
    group: str
    written: Callable[[Server], Json]
    form: Form = "json"
    over_http: bool = True
    hooks: Hooks | None = None
    next_step: str = "Restart it."


def _home(*parts: str) -> Path:
    return Path.home().joinpath(*parts)


def _program_data(*parts: str) -> Path:
    """Return the system's folder for the settings of desktop applications."""
    if sys.platform == "darwin":
        return _home("Library", "Application Support", *parts)
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or _home("AppData", "Roaming")).joinpath(*parts)
    return Path(os.environ.get("XDG_CONFIG_HOME") or _home(".config")).joinpath(*parts)


def _claude(name: str, otherwise: Path) -> Path:
    folder = os.environ.get("CLAUDE_CONFIG_DIR")
    return Path(folder, name) if folder else otherwise


def _codex(name: str) -> Path:
    return Path(os.environ.get("CODEX_HOME") or _home(".codex")).joinpath(name)


def _headers(server: Server, reference: str) -> Json:
    """Return the headers by which a key is sent, as text or as the host's reference to a variable."""
    key = server.key if server.key_env is None else reference.format(server.key_env)
    return {} if key is None else {"Authorization": f"Bearer {key}"}


def _command_entry(server: Server) -> Json:
    command, *arguments = server.command
    return {"command": command, "args": arguments} | ({"env": dict(server.env)} if server.env else {})


def _entry_writer(*, reference: str, url: str = "url", typed: bool = False) -> Callable[[Server], Json]:
    """Return the function that makes a host's entry for a server.

    Args:
        reference: the host's syntax for an environment variable, a format string with {} for its name.
        url: the name of the member that holds the address.
        typed: whether the entry has a member `type`.
    """

    def written(server: Server) -> Json:
        if server.url is None:
            return ({"type": "stdio"} if typed else {}) | _command_entry(server)
        headers = _headers(server, reference)
        return ({"type": "http"} if typed else {}) | {url: server.url} | ({"headers": headers} if headers else {})

    return written


def _codex_table(server: Server) -> Json:
    if server.url is None:
        return {**_command_entry(server), "startup_timeout_sec": START_TIMEOUT_S}
    if server.key_env is not None:
        return {"url": server.url, "bearer_token_env_var": server.key_env}
    return {"url": server.url} | ({"http_headers": headers} if (headers := _headers(server, "")) else {})


def _hook_group(command: str) -> Json:
    return {"hooks": [{"type": "command", "command": command, "timeout": HOOK_TIMEOUT_S}]}


def _named_hook_group(command: str) -> Json:
    return {"hooks": [{"name": "myria", "type": "command", "command": command, "timeout": HOOK_TIMEOUT_S * 1000}]}


HOSTS: Mapping[str, Host] = {
    host.name: host
    for host in (
        Host(
            name="claude-code",
            title="Claude Code",
            file=lambda: _claude(".claude.json", _home(".claude.json")),
            group="mcpServers",
            written=_entry_writer(reference="${{{}}}", typed=True),
            hooks=Hooks(
                file=lambda: _claude("settings.json", _home(".claude", "settings.json")),
                events=("SessionStart", "Stop"),
                written=_hook_group,
            ),
            next_step="Start a new session; /mcp shows the server, /hooks the hooks.",
        ),
        Host(
            name="claude-desktop",
            title="Claude Desktop",
            file=lambda: _program_data("Claude", "claude_desktop_config.json"),
            group="mcpServers",
            written=_command_entry,
            over_http=False,
            next_step="Quit and start it: closing its window is not enough.",
        ),
        Host(
            name="cursor",
            title="Cursor",
            file=lambda: _home(".cursor", "mcp.json"),
            group="mcpServers",
            written=_entry_writer(reference="${{env:{}}}"),
            hooks=Hooks(
                file=lambda: _home(".cursor", "hooks.json"),
                events=("sessionStart", "beforeSubmitPrompt", "afterAgentResponse"),
                written=lambda command: {"command": command},
                version=1,
            ),
            next_step="Its settings show the server under Tools & MCP.",
        ),
        Host(
            name="vscode",
            title="VS Code",
            file=lambda: _program_data("Code", "User", "mcp.json"),
            group="servers",
            written=_entry_writer(reference="${{env:{}}}", typed=True),
            next_step="`MCP: List Servers` shows the server.",
        ),
        Host(
            name="codex",
            title="Codex",
            file=lambda: _codex("config.toml"),
            group="mcp_servers",
            written=_codex_table,
            form="toml",
            hooks=Hooks(
                file=lambda: _codex("hooks.json"),
                events=("SessionStart", "UserPromptSubmit", "Stop"),
                written=_hook_group,
            ),
            next_step="Start it anew; /mcp shows the server. Hooks run once you have trusted them.",
        ),
        Host(
            name="gemini",
            title="Gemini CLI",
            file=lambda: _home(".gemini", "settings.json"),
            group="mcpServers",
            written=_entry_writer(reference="${}", url="httpUrl"),
            hooks=Hooks(
                file=lambda: _home(".gemini", "settings.json"),
                events=("SessionStart", "AfterAgent"),
                written=_named_hook_group,
            ),
            next_step="Start it anew; /mcp shows the server.",
        ),
    )
}
