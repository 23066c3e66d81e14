"""Official clients at the agent's face; each checks answers against the published schemas itself."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp import Client, StdioServerParameters

from tests.clients.conftest import Outside, rows_by
from tests.server import agent_rows
from tests.server.wire import Served
from tests.support.builds import rows
from tests.support.postgres import Database

HERE = Path(__file__).parent
AGENT_CLIENT = (HERE / "node" / "agent.mjs").read_text()

WAYS = ("auto", "legacy", "stdio")


async def ask(client: Client, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the structured content of a call."""
    result = await client.call_tool(tool, arguments)
    content: dict[str, Any] = result.structured_content
    return content


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_python_client_over_http(served: Served, mode: Literal["auto", "legacy"]) -> None:
    """The rows of the table, by discovery and by handshake."""
    async with Client(f"{served.server.url}/agent", mode=mode) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} >= {"remember", "recall", "forget", "amend"}
        assert await agent_rows.run(partial(ask, client), rows_by(mode, WAYS, agent_rows.ROWS)) == {}


async def test_the_python_client_over_stdio(database: Database) -> None:
    """The rows of the table through `myria serve --stdio --face agent`, which also tells how far a batch is; what was
    kept is whose the command says."""
    command = Path(sys.executable).with_name("myria")
    arguments = ["serve", "--stdio", "--face", "agent", "--as", "ana", "--as", "bot", "--dsn", database.server_dsn]
    told: list[tuple[float, float | None]] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total))

    # Clients give a server few variables of their own; those of the tests say that nothing is embedded.
    async with Client(StdioServerParameters(command=str(command), args=arguments, env={**os.environ})) as client:
        assert await agent_rows.run(partial(ask, client), rows_by("stdio", WAYS, agent_rows.ROWS)) == {}
        items = [{"content": f"note {number}"} for number in range(3)]
        await client.call_tool("batch_remember", {"items": items}, progress_callback=tell)
    assert told[-1] == (3, 3)
    scopes = await rows(database, "SELECT participants FROM myria.scopes")
    assert all({"ana", "bot"} <= set(scope["participants"]) for scope in scopes)


async def test_the_typescript_client(served: Served, outside: Outside) -> None:
    """@modelcontextprotocol/client remembers, recalls, amends and forgets."""
    url = f"{served.server.url}/agent"
    status, out, err = await outside.node("--input-type=module", "-", url, text=AGENT_CLIENT)
    assert status == 0, err
    said = json.loads(out)
    assert said["kept"]["created"] is True
    assert said["found"]["fragments"][0]["content"] == "The kiln opens on Friday"
    assert said["line"].endswith(f"[{said['found']['fragments'][0]['handle']}]")
    assert said["amended"]["fragment"]["content"] == "The kiln opens on Monday"
    assert said["gone"]["deleted"] == 1
    assert said["absent"][0] is True
    assert said["absent"][1]["code"] == "note_not_found"
