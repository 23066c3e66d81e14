"""Real clients of every kind append and query; each checks the answers against the published schemas itself."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp import Client, StdioServerParameters

from tests.clients.conftest import CORE_TOOLS, Outside
from tests.server.wire import Served, event
from tests.support.postgres import Database

HERE = Path(__file__).parent
CLIENT = (HERE / "node" / "client.mjs").read_text()
INSPECTOR = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"


def check(said: dict[str, Any]) -> None:
    """Check what a client script saw."""
    assert said["tools"] == len(CORE_TOOLS)
    assert said["stored"]["deduplicated"] is False
    assert [result["deduplicated"] for result in said["batch"]["results"]] == [True, False]
    assert said["batch"]["results"][0]["event_id"] == said["stored"]["event_id"]
    assert said["found"]["counts"]["events"] == said["topics"]["counts"]["events"] == 2
    assert said["bad"][0] is True
    assert said["bad"][1]["error"]["code"] == "invalid_text"


async def talk(client: Client) -> None:
    """Append and query as the other clients' scripts do."""

    async def call(name: str, arguments: dict[str, Any]) -> Any:
        return await client.call_tool(f"myria.{name}", arguments)

    tools = await client.list_tools()
    stored = await call("append_event", event("k1"))
    batch = await call("append_events", {"events": [event("k1"), event("k2")]})
    found = await call("query_event_nodes", {"participants": ["user_42"], "query": "memory"})
    topics = await call("query_references", {"participants": ["user_42"]})
    bad = await call("append_event", event(channel=""))
    check(
        {
            "tools": len(tools.tools),
            "stored": stored.structured_content,
            "batch": batch.structured_content,
            "found": found.structured_content,
            "topics": topics.structured_content,
            "bad": [bad.is_error, bad.structured_content],
        }
    )


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_python_client_2(served: Served, mode: Literal["auto", "legacy"]) -> None:
    """mcp 2.x, by discovery and by handshake."""
    async with Client(served.server.url, mode=mode) as client:
        await talk(client)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_python_client_2_over_stdio(database: Database, mode: Literal["auto", "legacy"]) -> None:
    """mcp 2.x starts `myria serve --stdio` itself."""
    command = Path(sys.executable).with_name("myria")
    arguments = ["serve", "--stdio", "--dsn", database.server_dsn]
    server = StdioServerParameters(command=str(command), args=arguments, env={**os.environ})
    async with Client(server, mode=mode) as client:
        await talk(client)


async def test_the_python_client_1(served: Served, outside: Outside) -> None:
    """mcp 1.x, which knows only handshakes."""
    status, out, err = await outside.mcp1(HERE / "mcp1" / "client.py", served.server.url)
    assert status == 0, err
    said = json.loads(out)
    assert said["version"] == "2025-11-25"
    check(said)


@pytest.mark.parametrize(
    ("mode", "version"),
    [("legacy", "2025-11-25"), ("auto", "2026-07-28"), ({"pin": "2026-07-28"}, "2026-07-28")],
    ids=["legacy", "auto", "pinned"],
)
async def test_the_typescript_client(served: Served, outside: Outside, mode: Any, version: str) -> None:
    """@modelcontextprotocol/client, by handshake, by discovery, and pinned to the newest protocol."""
    arguments = ("--input-type=module", "-", served.server.url, json.dumps(mode))
    status, out, err = await outside.node(*arguments, text=CLIENT)
    assert status == 0, err
    said = json.loads(out)
    assert said["version"] in (version, None)
    check(said)


async def test_the_inspector(served: Served, outside: Outside) -> None:
    """The inspector's command line lists tools without complaint, appends and queries."""

    async def inspect(*arguments: str) -> Any:
        at = ("--cli", served.server.url, "--transport", "http", "--method")
        status, out, err = await outside.node(INSPECTOR, *at, *arguments)
        assert status == 0, err + out
        return json.loads(out)

    tools = await inspect("tools/list", "--strict")
    assert len(tools["tools"]) == len(CORE_TOOLS)
    values = [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in event("k1").items()]
    stored = await inspect("tools/call", "--tool-name", "myria_append_event", "--tool-arg", *values)
    assert stored["structuredContent"]["deduplicated"] is False
    asked = ("--tool-arg", 'participants=["user_42"]', "query=memory", "limit=5")
    found = await inspect("tools/call", "--tool-name", "myria_query_event_nodes", *asked)
    children = found["structuredContent"]["root"]["children"]
    assert [node["event_id"] for node in children] == [stored["structuredContent"]["event_id"]]
