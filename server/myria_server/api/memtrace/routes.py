"""The routes of REST: one table, from which requests are told apart, documents are made, and tests ask everything."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from myria.access.principal import Role
from myria.errors import (
    AgentExists,
    AgentNotFound,
    AlreadySuperseded,
    DuplicateMemory,
    IdempotencyKeyReused,
    InvalidText,
    MethodNotAllowed,
    MyriaError,
    NoteNotFound,
    PathNotFound,
    SessionNotFound,
)
from myria_server.api.answers import Answer
from myria_server.api.core.inputs import Input
from myria_server.api.memtrace import schemas as rest


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """One route.

    `path` stands below the prefix; `{id}` is one segment. `changes` tells whether it writes. `query` and `body` are the
    models of what it takes; a body may be left out where `needs_body` is false. `keyed` says that it takes an
    Idempotency-Key. `answer` is its model, None where it answers nothing; `refusals` are its own, beside those of all.
    """

    name: str
    method: str
    path: str
    title: str
    changes: bool = False
    query: type[Input] | None = None
    body: tuple[type[Input], ...] = ()
    needs_body: bool = True
    keyed: bool = False
    answer: tuple[type[Answer], ...] = ()
    status: int = 200
    refusals: tuple[type[MyriaError], ...] = ()

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles of which a caller needs one."""
        return ("append",) if self.changes else ("read",)


ROUTES: tuple[Route, ...] = (
    Route(
        name="keep_memories",
        method="POST",
        path="/memories",
        title="Keep a memory, or several",
        changes=True,
        body=(rest.MemoryInput, rest.MemoriesInput),
        keyed=True,
        answer=(rest.MemoryBody, rest.MemoriesBody),
        status=201,
        refusals=(DuplicateMemory, IdempotencyKeyReused, NoteNotFound),
    ),
    Route(
        name="list_memories",
        method="GET",
        path="/memories",
        title="List memories by filters",
        query=rest.ListInput,
        answer=(rest.MemoryListBody,),
    ),
    Route(
        name="get_memory",
        method="GET",
        path="/memories/{id}",
        title="Read one memory",
        answer=(rest.MemoryBody,),
        refusals=(NoteNotFound,),
    ),
    Route(
        name="amend_memory",
        method="PATCH",
        path="/memories/{id}",
        title="Change a memory; its id and its time stay",
        changes=True,
        body=(rest.MemoryChangeInput,),
        keyed=True,
        answer=(rest.MemoryBody,),
        refusals=(NoteNotFound, AlreadySuperseded, DuplicateMemory, IdempotencyKeyReused),
    ),
    Route(
        name="withdraw_memory",
        method="DELETE",
        path="/memories/{id}",
        title="Take a memory out of every answer",
        changes=True,
        keyed=True,
        status=204,
        refusals=(NoteNotFound,),
    ),
    Route(
        name="search_memories",
        method="POST",
        path="/search",
        title="Search memories",
        body=(rest.SearchInput,),
        answer=(rest.SearchBody,),
    ),
    Route(
        name="register_agent",
        method="POST",
        path="/agents",
        title="Register an agent",
        changes=True,
        body=(rest.NewAgentInput,),
        keyed=True,
        answer=(rest.AgentBody,),
        status=201,
        refusals=(AgentExists, IdempotencyKeyReused),
    ),
    Route(
        name="list_agents",
        method="GET",
        path="/agents",
        title="List agents, newest first",
        query=rest.RegistryInput,
        answer=(rest.AgentsBody,),
    ),
    Route(
        name="get_agent",
        method="GET",
        path="/agents/{id}",
        title="Read an agent, by its id or name",
        answer=(rest.AgentBody,),
        refusals=(AgentNotFound,),
    ),
    Route(
        name="delete_agent",
        method="DELETE",
        path="/agents/{id}",
        title="Take an agent out of the registry; what it kept stays",
        changes=True,
        keyed=True,
        status=204,
        refusals=(AgentNotFound,),
    ),
    Route(
        name="list_agent_memories",
        method="GET",
        path="/agents/{id}/memories",
        title="List what an agent kept, under its id and its name",
        query=rest.AgentListInput,
        answer=(rest.MemoryListBody,),
    ),
    Route(
        name="get_agent_statistics",
        method="GET",
        path="/agents/{id}/stats",
        title="Count what an agent kept, under its id and its name",
        answer=(rest.StatisticsBody,),
    ),
    Route(
        name="open_session",
        method="POST",
        path="/sessions",
        title="Open a session of a registered agent",
        changes=True,
        body=(rest.NewSessionInput,),
        keyed=True,
        answer=(rest.SessionBody,),
        status=201,
        refusals=(IdempotencyKeyReused,),
    ),
    Route(
        name="list_sessions",
        method="GET",
        path="/sessions",
        title="List sessions, newest first",
        query=rest.SessionsInput,
        answer=(rest.SessionsBody,),
    ),
    Route(
        name="get_session",
        method="GET",
        path="/sessions/{id}",
        title="Read a session",
        answer=(rest.SessionBody,),
        refusals=(SessionNotFound,),
    ),
    Route(
        name="change_session",
        method="PUT",
        path="/sessions/{id}",
        title="Close a session, or change it",
        changes=True,
        body=(rest.SessionChangeInput,),
        answer=(rest.SessionBody,),
        refusals=(SessionNotFound,),
    ),
    Route(
        name="list_session_memories",
        method="GET",
        path="/sessions/{id}/memories",
        title="List what was kept in a session",
        query=rest.ListInput,
        answer=(rest.MemoryListBody,),
    ),
    Route(
        name="get_session_context",
        method="POST",
        path="/sessions/{id}/context",
        title="Write the context of a session, for a prompt",
        body=(rest.SessionContextInput,),
        needs_body=False,
        answer=(rest.ContextBody,),
    ),
)
"""Every route that needs a credential."""

_WANTED: dict[int, list[tuple[list[str], Route]]] = {}
for _route in ROUTES:
    _segments = _route.path.split("/")[1:]
    _WANTED.setdefault(len(_segments), []).append((_segments, _route))

_NAMED = {"memories": NoteNotFound, "agents": AgentNotFound, "sessions": SessionNotFound}
_MISSING = {"memories": "memory not found", "agents": "agent not found", "sessions": "session not found"}
_MAX_ID = 200


@dataclass(frozen=True, slots=True)
class Matched:
    """A route, and the id that stands in the path."""

    route: Route
    entry_id: str


_KNOWN: dict[tuple[str, bytes], Matched] = {
    (route.method, f"{rest.PREFIX}{route.path}".encode()): Matched(route, "")
    for route in ROUTES
    if "{id}" not in route.path
}
"""Requests whose path says all: nearly every one that keeps something."""


def match(method: str, raw_path: bytes) -> Matched:
    """Return the route of a request.

    Args:
        raw_path: as it was sent, percent-encoded.

    Raises:
        PathNotFound: nothing is served there.
        MethodNotAllowed: something is, by other methods; the detail `allow` names them.
        InvalidText: an id that is no text in UTF-8, or holds NUL.
        NoteNotFound, AgentNotFound, SessionNotFound: an id that nothing can have.
    """
    known = _KNOWN.get((method, raw_path))
    if known is not None:
        return known
    path = raw_path.decode("latin-1").partition("?")[0].removeprefix(rest.PREFIX)
    segments = (path.removesuffix("/")).split("/")[1:]
    candidates = [route for wanted, route in _WANTED.get(len(segments), ()) if _fits(wanted, segments)]
    if not candidates:
        raise PathNotFound(f"nothing is served here; {rest.PREFIX}/openapi.json says what is")
    chosen = next((route for route in candidates if route.method == method), None)
    if chosen is None:
        allow = ", ".join(sorted(route.method for route in candidates))
        raise MethodNotAllowed(f"this path takes {allow}", allow=allow)
    if "{id}" not in chosen.path:
        return Matched(chosen, "")
    try:
        entry_id = unquote(segments[1], errors="strict")
    except UnicodeDecodeError as error:
        raise InvalidText("the id in the path is no UTF-8", field="id") from error
    if not entry_id or len(entry_id) > _MAX_ID or re.fullmatch(r"[\x21-\x7e]+", entry_id) is None:
        raise _NAMED[segments[0]](_MISSING[segments[0]])
    return Matched(chosen, entry_id)


def _fits(wanted: list[str], segments: list[str]) -> bool:
    return all(part in ("{id}", given) for part, given in zip(wanted, segments, strict=True))
