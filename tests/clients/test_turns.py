"""Official clients at the face of turns: the rows of the contract's table, answers checked against the schemas."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp import Client, StdioServerParameters

from myria.settings import Settings, TurnsSettings
from tests.clients.conftest import Outside, rows_by
from tests.server import turn_rows
from tests.server.wire import Served
from tests.support.postgres import Database

TURNS_CLIENT = (Path(__file__).parent / "node" / "turns.mjs").read_text()

WAYS = ("auto", "legacy", "stdio", "node")


@pytest.fixture
def settings() -> Settings:
    """The face is on, with the limits of the table."""
    return Settings(turns=TurnsSettings(enabled=True, max_items=turn_rows.MOST_ITEMS, part_bytes=turn_rows.PART_BYTES))


async def ask(client: Client, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the structured content of a call."""
    result = await client.call_tool(tool, arguments)
    content: dict[str, Any] = result.structured_content
    assert result.is_error == ("retryable" in content)
    return content


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_python_client_over_http(served: Served, mode: Literal["auto", "legacy"]) -> None:
    """The rows of the table, by discovery and by handshake."""
    async with Client(f"{served.server.url}/turns", mode=mode) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {row.tool for row in turn_rows.ROWS}
        assert await turn_rows.run(partial(ask, client), f"row-{mode}", rows_by(mode, WAYS, turn_rows.ROWS)) == {}


@pytest.mark.processes
async def test_the_python_client_over_stdio(database: Database) -> None:
    """The rows of the table through `myria serve --stdio --face turns`."""
    command = Path(sys.executable).with_name("myria")
    arguments = ["serve", "--stdio", "--face", "turns", "--dsn", database.server_dsn]
    limits = {
        "MYRIA_TURNS_ENABLED": "true",
        "MYRIA_TURNS_MAX_ITEMS": str(turn_rows.MOST_ITEMS),
        "MYRIA_TURNS_PART_BYTES": str(turn_rows.PART_BYTES),
    }
    server = StdioServerParameters(command=str(command), args=arguments, env={**os.environ, **limits})
    async with Client(server) as client:
        assert await turn_rows.run(partial(ask, client), "row-stdio", rows_by("stdio", WAYS, turn_rows.ROWS)) == {}


async def test_the_typescript_client(served: Served, outside: Outside, tmp_path: Path) -> None:
    """@modelcontextprotocol/client makes the calls of the rows, and its answers are those of the contract."""
    rows = [(row, row.calls(f"row-node-{number}")) for number, row in enumerate(rows_by("node", WAYS, turn_rows.ROWS))]
    file = tmp_path / "calls.json"
    file.write_text(json.dumps([call for _, calls in rows for call in calls]))
    status, out, err = await outside.node(
        "--input-type=module", "-", f"{served.server.url}/turns", file, text=TURNS_CLIENT
    )
    assert status == 0, err
    answers = iter(json.loads(out))
    wrong = {}
    for row, calls in rows:
        told = [next(answers) for _ in calls]
        if row.is_wrong(told):
            wrong[row.name] = told[-1]
    assert wrong == {}
