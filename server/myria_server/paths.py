"""Where the server serves each API and the console, and the settings that switch an API on.

The command line asks this before it starts a server, so nothing of the server is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping

from myria.access.principal import ApiName
from myria.settings import Settings

PATH_OF: Mapping[ApiName, str] = {
    "core": "/mcp",
    "agent": "/mcp/agent",
    "turns": "/mcp/turns",
    "rest": "/mcp/memtrace",
    "admin": "/mcp/admin",
}
"""The HTTP path of each API over MCP."""

REST_PREFIX = "/api/v1"
"""Where the routes of the API `rest` begin."""

TURNS_OVER_HTTP: Mapping[str, str] = {
    "/v1/turns:before": "memory_before_turn",
    "/v1/turns:after": "memory_after_turn",
}
"""Tools of turns that hosts without an MCP client call by a plain POST, and where."""

CONSOLE_PREFIX = "/console"
"""Where the console's pages begin."""

SWITCH_OF: Mapping[ApiName, str] = {"agent": "agent.enabled", "turns": "turns.enabled", "rest": "rest.enabled"}
"""The setting that switches an API on, for those that can be off."""


def served_apis(settings: Settings) -> tuple[ApiName, ...]:
    """Return the APIs that are not switched off."""
    return tuple(api for api in PATH_OF if api not in SWITCH_OF or settings.get(SWITCH_OF[api]))
