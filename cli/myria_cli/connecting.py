"""Connecting to a running memory as a client: its faces, with a key where it asks for one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client


@asynccontextmanager
async def connected(url: str, key: str | None = None) -> AsyncIterator[Client]:
    """Lend an MCP client of one face.

    Args:
        url: where the face is served.
        key: what the server asks for; None where it asks for nothing.
    """
    if key is None:
        async with Client(url) as client:
            yield client
        return
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        create_mcp_http_client(headers=headers) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


def admin_url(url: str) -> str:
    """Return where a server whose MCP endpoint is `url` is administered."""
    return url.rstrip("/") + "/admin"
