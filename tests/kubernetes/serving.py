"""The MCP server beside an installation, as the process that serves, and what a real client gets from it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from mcp import Client

from tests.support.postgres import Database
from tests.support.processes import Spawner, free_port


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One answer: the snapshot it was read from, and the numbers of its events, by where they came from."""

    snapshot_id: str | None
    indexed: frozenset[int]
    fresh: frozenset[int]


class Serving:
    """`myria serve`, started with the object; its end is the spawner's."""

    def __init__(self, spawn: Spawner, database: Database) -> None:
        self._port = free_port()
        self._process = spawn.myria("serve", "--port", str(self._port), env={"MYRIA_POSTGRES_DSN": database.tcp.server})
        self._process.wait_for("serving MCP")

    def ask(self, *participants: str) -> Seen:
        """Return what a client is told that connects now and asks for everything (200 events at most)."""
        found = asyncio.run(self._call({"participants": list(participants), "order": "oldest", "limit": 200}))
        events = list(_events(found["root"]))
        return Seen(
            snapshot_id=found["snapshot_id"],
            indexed=frozenset(one["event_seq"] for one in events if one["indexed"]),
            fresh=frozenset(one["event_seq"] for one in events if not one["indexed"]),
        )

    async def _call(self, arguments: dict[str, Any]) -> Any:
        async with Client(f"http://127.0.0.1:{self._port}/mcp") as client:
            answer = await client.call_tool("myria_query_event_nodes", arguments)
        assert not answer.is_error, answer.structured_content
        return answer.structured_content


def _events(node: dict[str, Any]) -> Any:
    if "event_seq" in node:
        yield node
    for child in node.get("children", ()):
        yield from _events(child)
