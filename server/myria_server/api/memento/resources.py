"""Resources that a host shows at the agent's face: what is kept in numbers, by topics, and by which rules."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import mcp_types
import orjson
from mcp.shared.exceptions import MCPError

from myria.access.principal import Principal
from myria.errors import InternalError
from myria.notes.kinds import kinds_of, policies
from myria.settings import Settings
from myria_server.api.memento.input_schemas import CONTRACT
from myria_server.api.results import CallResult

JSON_TYPE = "application/json"

Call = Callable[[str, Any, Principal], Awaitable[CallResult]]
"""Calls a tool by its name on behalf of a principal, as `Toolbox.call` does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Resource:
    """A resource; those that `asks` are made from an answer of memory_stats."""

    uri: str
    title: str
    description: str
    asks: bool


_RESOURCES = (
    _Resource(uri="memory://stats", title="What is kept", description="Notes by type and tier.", asks=True),
    _Resource(uri="memory://topics", title="Topics", description="The topics of most notes.", asks=True),
    _Resource(uri="memory://config", title="Rules of memory", description="Types of notes and limits.", asks=False),
)


def listed_resources() -> list[mcp_types.Resource]:
    """Return the resources of the face."""
    return [
        mcp_types.Resource(
            name=resource.uri.removeprefix("memory://"),
            title=resource.title,
            uri=resource.uri,
            description=resource.description,
            mime_type=JSON_TYPE,
        )
        for resource in _RESOURCES
    ]


async def read_resource(call: Call, settings: Settings, principal: Principal, uri: str) -> mcp_types.ReadResourceResult:
    """Return a resource as JSON. What it tells of notes is what memory_stats tells this principal.

    Raises:
        MCPError: there is none of this address, or the principal may not ask.
    """
    resource = next((resource for resource in _RESOURCES if resource.uri == uri), None)
    if resource is None:
        known = ", ".join(resource.uri for resource in _RESOURCES)
        raise MCPError(
            code=mcp_types.INVALID_PARAMS, message=f"Unknown resource: {uri[:100]}; the resources are {known}"
        )
    shown: Any = _config(settings)
    if resource.asks:
        outcome = await call("memory_stats", {}, principal)
        answer = orjson.loads(outcome.body)
        if outcome.is_error:
            is_ours = answer["retryable"] or outcome.code == InternalError.code
            code = mcp_types.INTERNAL_ERROR if is_ours else mcp_types.INVALID_PARAMS
            raise MCPError(code=code, message=f"{answer['code']}: {answer['error']}", data=answer)
        shown = answer["stats"] if resource.uri == "memory://stats" else {"topics": answer["topics"]}
    text = orjson.dumps(shown).decode()
    return mcp_types.ReadResourceResult(
        contents=[mcp_types.TextResourceContents(uri=uri, mime_type=JSON_TYPE, text=text)]
    )


def _config(settings: Settings) -> dict[str, Any]:
    """Return the rules by which notes are kept, as far as whoever keeps them should know."""
    known = policies()
    return {
        "types": {
            kind: {"importance": known[kind].importance, "lifetime": known[kind].lifetime}
            for kind in kinds_of(CONTRACT)
        },
        "content_characters": settings.notes.content_characters,
        "session_idle_s": settings.notes.session_idle_s,
        "pool": settings.agent.pool,
        "redacted": sorted({*settings.redaction.kinds, *settings.agent.redaction_kinds}),
    }
