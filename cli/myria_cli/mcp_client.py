"""A running memory as its MCP clients see it: its APIs, with a key where it asks for one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from myria.errors import BuildInvalid, InternalError, MyriaError


@asynccontextmanager
async def connected(url: str, key: str | None = None) -> AsyncIterator[Client]:
    """Connect an MCP client to one API for the block.

    Args:
        url: the API's address.
        key: the key to send; None for a server that needs none.
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
    """Return the address of the admin API of the server whose core API is at `url`."""
    return url.rstrip("/") + "/admin"


async def call(client: Client, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return what a tool answers.

    Raises:
        InternalError: it refused.
    """
    result = await client.call_tool(tool, arguments)
    content: Any = result.structured_content
    if result.is_error or not isinstance(content, dict):
        raise InternalError(f"{tool} was refused: {json.dumps(content, ensure_ascii=False)}")
    return content


def refuse_failed(build: dict[str, Any]) -> None:
    """Check that a build, as in the answer of `myria_get_snapshot_status`, did not fail.

    Raises:
        BuildInvalid: it failed, or was aborted.
    """
    if build["status"] in ("failed", "aborted"):
        reason = (build["error"] or {}).get("message", build["status"])
        raise BuildInvalid(f"the build failed: {reason}", build_id=build["build_id"])


@contextmanager
def unwrapped() -> Iterator[None]:
    """Raise our own errors out of the exception groups in which the client's tasks wrap them."""
    try:
        yield
    except BaseExceptionGroup as group:
        known, _ = group.split(MyriaError)
        raise innermost(known or group) from None


def innermost(problem: BaseException) -> BaseException:
    """Return the first exception of a group that is no group itself."""
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    return problem
