"""Run by a Python that has mcp 1.x: connect to an MCP server by its address alone, with the SDK's own OAuth flow.

A line `{"browse": URL}` asks whoever reads to open a page as a person does, and to write the code and the state that
come back; the last line is what happened, as JSON.
"""

# mypy: ignore-errors
# Checked against nothing: the mcp of the development environment is 2.x.

import asyncio
import json
import sys
import time

import httpx
from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata

EVENT = {"timestamp": "2026-03-19T20:00:00Z", "channel": "editor", "payload": {"text": "We design the memory system"}}


class Kept:
    """Where the client keeps what it got."""

    def __init__(self):
        self.client = None
        self.saved = []

    async def get_tokens(self):
        return self.saved[-1] if self.saved else None

    async def set_tokens(self, tokens):
        self.saved.append(tokens)

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


async def browse(url):
    print(json.dumps({"browse": url}), flush=True)


async def returned():
    code, state = (await asyncio.to_thread(sys.stdin.readline)).split()
    return code, state


async def main(url):
    kept = Kept()
    wanted = {"client_name": "Python Editor", "redirect_uris": ["http://127.0.0.1:7777/callback"]}
    provider = OAuthClientProvider(url, OAuthClientMetadata.model_validate(wanted), kept, browse, returned)
    async with (
        httpx.AsyncClient(auth=provider, timeout=60) as http,
        streamable_http_client(url, http_client=http) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        tools = (await session.list_tools()).tools
        stored = await session.call_tool("myria_append_event", EVENT)
        now = time.time
        time.time = lambda: now() + 3601  # the access token's hour is over by this machine's clock
        found = await session.call_tool("myria_query_event_nodes", {"query": "memory"})
        return {
            "tools": len(tools),
            "stored": stored.structuredContent,
            "found": found.structuredContent,
            "scope": kept.saved[0].scope,
            "tokens": len({tokens.access_token for tokens in kept.saved}),
        }


print(json.dumps(asyncio.run(main(sys.argv[1]))), flush=True)
