"""Run by a Python that has mcp 1.x: append and query over HTTP or stdio, print what came back as JSON."""

# mypy: ignore-errors
# Checked against nothing: the mcp of the development environment is 2.x.

import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

EVENT = {
    "timestamp": "2026-03-19T20:00:00Z",
    "channel": "telegram",
    "participants": ["user_42", "agent_1"],
    "payload": {"text": "We design the memory system"},
    "source_event_key": "k1",
}


async def talk(read, write):
    async with ClientSession(read, write) as session:
        hello = await session.initialize()
        tools = {tool.name for tool in (await session.list_tools()).tools}
        stored = await session.call_tool("myria_append_event", EVENT)
        batch = await session.call_tool("myria_append_events", {"events": [EVENT, {**EVENT, "source_event_key": "k2"}]})
        found = await session.call_tool("myria_query_event_nodes", {"participants": ["user_42"], "query": "memory"})
        topics = await session.call_tool("myria_query_references", {"participants": ["user_42"]})
        bad = await session.call_tool("myria_append_event", {**EVENT, "channel": ""})
        return {
            "version": hello.protocolVersion,
            "tools": len(tools),
            "stored": stored.structuredContent,
            "batch": batch.structuredContent,
            "found": found.structuredContent,
            "topics": topics.structuredContent,
            "bad": [bad.isError, bad.structuredContent],
        }


async def main(target, *arguments):
    if target.startswith("http"):
        async with streamablehttp_client(target) as (read, write, _):
            return await talk(read, write)
    async with stdio_client(StdioServerParameters(command=target, args=list(arguments))) as (read, write):
        return await talk(read, write)


print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
