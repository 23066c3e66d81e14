"""The calls of `/api/v1`, each made of its arguments. Pure: both clients send what is made here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict
from urllib.parse import quote

from myria_client._calls import Call, Json, given, new_key, nothing
from myria_client._errors import Invalid
from myria_client.records import (
    Agent,
    AgentSession,
    AgentStatistics,
    Health,
    KeptMemories,
    Memory,
    MemoryPage,
    MemoryType,
    Moment,
    NewMemory,
    Order,
    SessionContext,
    moment,
)

_API = "/api/v1"
MOST_LISTED = 1_000
"""Memories, agents or sessions of one page at most."""


class OwnFilters(TypedDict, total=False):
    """Which memories of an agent or a session are listed; all that is given must hold, and None asks for any.

    `tags`: what has all of these. `since` and `until`: both exclusive. `order`: by time, newest first (`desc`) unless
    it says `asc`.
    """

    memory_type: MemoryType | None
    event_type: str | None
    tags: Sequence[str]
    since: Moment | None
    until: Moment | None
    order: Order | None


class ListFilters(OwnFilters, total=False):
    """Which memories are listed: as `OwnFilters`, of any agent and session or of one."""

    agent_id: str | None
    session_id: str | None


class RecallFilters(TypedDict, total=False):
    """Within what is recalled: all that is given must hold."""

    agent_id: str | None
    session_id: str | None
    memory_types: Sequence[MemoryType]
    event_types: Sequence[str]
    tags: Sequence[str]
    since: Moment | None
    until: Moment | None
    min_importance: float | None


class SearchFilters(RecallFilters, total=False):
    """Which memories are searched for: as `ListFilters`, and several types at once.

    `query`: what they are about; the best come first, on one page.
    `content_contains`: what the content holds, as it is written. `min_importance`: from 0 to 1.
    """

    query: str | None
    content_contains: str | None
    order: Order | None


def _named(kind: str, name: str, *more: str) -> str:
    if not isinstance(name, str) or name in {"", ".", ".."}:
        # The address would be that of the list, or of something else.
        raise Invalid("INVALID_ARGUMENT", f"{name!r} names nothing: give the id of one of {kind}", 400, field="id")
    return "/".join([_API, kind, quote(name, safe=""), *more])


def keep(memory: NewMemory, key: str | None) -> Call[Memory]:
    """Keep a memory."""
    body = memory.to_json()
    return Call(method="POST", path=f"{_API}/memories", body=body, key=key or new_key(), read=Memory.from_json)


def keep_many(memories: Sequence[Json], *, atomic: bool | None, key: str | None) -> Call[KeptMemories]:
    """Keep several memories, as JSON."""
    return Call(
        method="POST",
        path=f"{_API}/memories",
        body={"memories": list(memories)} | given(atomic=atomic),
        key=key or new_key(),
        read=KeptMemories.from_json,
    )


def get_memory(memory_id: str) -> Call[Memory]:
    """Read a memory."""
    return Call(method="GET", path=_named("memories", memory_id), read=Memory.from_json)


def amend_memory(memory_id: str, changes: Json, *, key: str | None = None) -> Call[Memory]:
    """Change a memory."""
    path = _named("memories", memory_id)
    return Call(method="PATCH", path=path, body=changes, key=key or new_key(), read=Memory.from_json)


def changes_of(
    *,
    content: str | None,
    event_type: str | None,
    metadata: Mapping[str, Any] | None,
    tags: Sequence[str] | None,
    importance: float | None,
    version: int | None,
) -> Json:
    """Return changes as they are sent."""
    return given(
        content=content,
        event_type=event_type,
        metadata=None if metadata is None else dict(metadata),
        tags=None if tags is None else list(tags),
        importance=importance,
        version=version,
    )


def withdraw_memory(memory_id: str, *, key: str | None = None) -> Call[None]:
    """Take a memory out of every answer."""
    return _removed(_named("memories", memory_id), key)


def _removed(path: str, key: str | None) -> Call[None]:
    return Call(method="DELETE", path=path, key=key or new_key(), read=nothing, absent_is_done=True)


def list_memories(filters: ListFilters, *, limit: int | None, cursor: str | None) -> Call[MemoryPage]:
    """List memories by filters."""
    return _listed(f"{_API}/memories", filters, limit, cursor)


def list_memories_of(
    kind: str, name: str, filters: OwnFilters, *, limit: int | None, cursor: str | None
) -> Call[MemoryPage]:
    """List what an agent kept, or what was kept in a session (`kind`: agents, sessions)."""
    return _listed(_named(kind, name, "memories"), filters, limit, cursor)


def _listed(path: str, filters: OwnFilters, limit: int | None, cursor: str | None) -> Call[MemoryPage]:
    query: dict[str, Any] = {**filters, "limit": limit, "cursor": cursor}
    for name in ("since", "until"):
        query[name] = moment(query.get(name))
    if tags := query.pop("tags", None):
        if any("," in tag for tag in tags):
            raise Invalid("INVALID_ARGUMENT", "a tag holds letters, digits, _, . and -", 400, field="tags")
        query["tags"] = ",".join(tags)
    return Call(method="GET", path=path, query=query, read=MemoryPage.from_json)


def search_memories(filters: SearchFilters, *, limit: int | None, cursor: str | None) -> Call[MemoryPage]:
    """Search memories."""
    return _searched({**filters, "limit": limit, "cursor": cursor})


def _searched(asked: Json) -> Call[MemoryPage]:
    body = given(**asked)
    for name in ("since", "until"):
        if name in body:
            body[name] = moment(body[name])
    for name in ("memory_types", "event_types", "tags"):
        if name in body:
            body[name] = list(body[name])
    return Call(method="POST", path=f"{_API}/search", body=body, read=MemoryPage.from_json)


def recall(about: str | None, limit: int, filters: RecallFilters) -> Call[MemoryPage]:
    """Search by what memories are about."""
    return _searched({**filters, "query": about, "limit": limit})


def register_agent(
    name: str, *, description: str | None, config: Mapping[str, Any] | None, key: str | None
) -> Call[Agent]:
    """Register an agent."""
    body = given(name=name, description=description, config=None if config is None else dict(config))
    return Call(method="POST", path=f"{_API}/agents", body=body, key=key or new_key(), read=Agent.from_json)


def list_agents(*, limit: int | None, offset: int | None) -> Call[tuple[Agent, ...]]:
    """List agents."""
    return Call(
        method="GET",
        path=f"{_API}/agents",
        query={"limit": limit, "offset": offset},
        read=lambda body: tuple(map(Agent.from_json, body["agents"])),
    )


def get_agent(agent: str) -> Call[Agent]:
    """Read an agent."""
    return Call(method="GET", path=_named("agents", agent), read=Agent.from_json)


def delete_agent(agent: str, *, key: str | None = None) -> Call[None]:
    """Take an agent out of the registry."""
    return _removed(_named("agents", agent), key)


def agent_statistics(agent: str) -> Call[AgentStatistics]:
    """Count what an agent kept."""
    return Call(method="GET", path=_named("agents", agent, "stats"), read=AgentStatistics.from_json)


def open_session(agent: str, *, metadata: Mapping[str, Any] | None, key: str | None) -> Call[AgentSession]:
    """Open a session."""
    body = given(agent_id=agent, metadata=None if metadata is None else dict(metadata))
    return Call(method="POST", path=f"{_API}/sessions", body=body, key=key or new_key(), read=AgentSession.from_json)


def list_sessions(agent: str | None, *, limit: int | None, offset: int | None) -> Call[tuple[AgentSession, ...]]:
    """List sessions."""
    return Call(
        method="GET",
        path=f"{_API}/sessions",
        query={"agent_id": agent, "limit": limit, "offset": offset},
        read=lambda body: tuple(map(AgentSession.from_json, body["sessions"])),
    )


def get_session(session_id: str) -> Call[AgentSession]:
    """Read a session."""
    return Call(method="GET", path=_named("sessions", session_id), read=AgentSession.from_json)


def change_session(session_id: str, *, status: str | None, metadata: Mapping[str, Any] | None) -> Call[AgentSession]:
    """Close a session, or change it."""
    body = given(status=status, metadata=None if metadata is None else dict(metadata))
    return Call(method="PUT", path=_named("sessions", session_id), body=body, read=AgentSession.from_json)


def session_context(
    session_id: str,
    *,
    query: str | None,
    max_tokens: int | None,
    include_types: Sequence[str],
    since: Moment | None,
) -> Call[SessionContext]:
    """Write the context of a session."""
    body = given(query=query, max_tokens=max_tokens, include_types=list(include_types) or None, since=moment(since))
    return Call(method="POST", path=_named("sessions", session_id, "context"), body=body, read=SessionContext.from_json)


def health() -> Call[Health]:
    """Ask how the server is."""
    return Call(method="GET", path=f"{_API}/health", read=Health.from_json, also=(503,))


def ready() -> Call[Health]:
    """Ask whether the server takes requests."""
    return Call(method="GET", path=f"{_API}/ready", read=Health.from_json, also=(503,))


def post(path: str, body: Json) -> Call[Json]:
    """Send a body that may be sent again as it is."""
    answer: Callable[[Any], Json] = dict
    return Call(method="POST", path=path, body=body, read=answer)
