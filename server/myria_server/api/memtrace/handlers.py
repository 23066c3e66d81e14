"""Memtrace's REST API: its routes, each beside what answers it, and its seven tools over MCP."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote

import orjson

from myria.access.principal import Principal, Role
from myria.db.clock import to_rfc3339
from myria.errors import (
    AgentExists,
    AgentNotFound,
    AlreadySuperseded,
    BatchTooLarge,
    DuplicateMemory,
    EventNotFound,
    IdempotencyKeyReused,
    InvalidArgument,
    InvalidText,
    MethodNotAllowed,
    MyriaError,
    NoteNotFound,
    PathNotFound,
    SessionNotFound,
)
from myria.log.canonical import digest
from myria.log.masks import Masks
from myria.memory import Memory
from myria.notes.answertext import NOTHING, ShownAnswer
from myria.notes.memories.commands import Kept
from myria.notes.memories.model import MemoryChanges, MemoryDraft
from myria.notes.memories.reading import EVENT_ID_PREFIX, MemoryPage
from myria.notes.memories.sharing import Keeping, keeping, shared_participant
from myria.notes.model import NOTE_CHANNEL
from myria.notes.registrations.model import REGISTRY_CHANNEL, Entry
from myria.settings import Settings
from myria_server.api.answers import Answer
from myria_server.api.core import inputs
from myria_server.api.core.inputs import Input
from myria_server.api.memtrace import schemas as rest
from myria_server.api.memtrace.schemas import refused, status_of

__all__ = ["ROUTES", "Asked", "MemtraceApi", "Route", "handlers", "match", "refused", "status_of"]

Json = dict[str, Any]
ToolHandler = Callable[[Principal, Any], Awaitable[ShownAnswer]]
_Run = TypeVar("_Run", bound=Callable[..., Awaitable[Json]])


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """One route: a method of `MemtraceApi` has its name, and what that does is its title.

    `path` stands below the prefix; `{id}` is one segment. `changes` tells whether it writes, to `channel`. `query` and
    `body` are the models of what it takes; a body may be left out where `needs_body` is false. `keyed` says that it
    takes an Idempotency-Key. `answer` is its model, none where it answers nothing; `refusals` are its own, beside those
    of all.
    """

    name: str
    title: str
    method: str
    path: str
    query: type[Input] | None = None
    body: tuple[type[Input], ...] = ()
    needs_body: bool = True
    answer: tuple[type[Answer], ...] = ()
    changes: bool = False
    channel: str | None = None
    keyed: bool = False
    status: int = 200
    refusals: tuple[type[MyriaError], ...] = ()

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles of which a caller needs one."""
        return ("append",) if self.changes else ("read",)

    def read(self, parts: Asked) -> Any:
        """Return the query or the body of a request, read as the route's model; None where the route takes neither.

        Raises:
            as `inputs.read`.
        """
        if self.query is not None:
            # The id in the path decides, so the same field is taken out of the query.
            path_field = {_PATH_ID_FIELDS[self.path.split("/")[1]]: None} if parts.entry_id else {}
            return inputs.read(self.query, {**parts.query, **path_field})
        if not self.body:
            return None
        body = _as_object(parts.body)
        # Of two models the last one is that of several memories at once.
        return inputs.read(self.body[-1 if body.get("memories") is not None else 0], body)


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What a request asks: the id in its path, its query, its body, and its Idempotency-Key."""

    entry_id: str = ""
    query: Json = field(default_factory=dict)
    body: Any = None
    key: str | None = None

    @classmethod
    def of(cls, entry_id: str, *, query: bytes, body: Any, key: bytes | None) -> Asked:
        """Return the parts of a request, with query and key decoded.

        Raises:
            InvalidArgument: a parameter is given twice.
            InvalidText: the Idempotency-Key is empty, too long, or not printable ASCII.
        """
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, errors="surrogateescape") if query else []
        parameters = dict(pairs)
        if len(parameters) < len(pairs):
            repeated = next(name for name, _ in pairs if [other for other, _ in pairs].count(name) > 1)
            raise InvalidArgument(f"{repeated[:50]} is given more than once", field=repeated[:50])
        if key is not None and (
            not 0 < len(key) <= rest.MAX_KEY or not key.isascii() or not key.decode().isprintable()
        ):
            raise InvalidText(
                f"the header Idempotency-Key must hold 1 to {rest.MAX_KEY} printable characters of ASCII",
                field="Idempotency-Key",
            )
        return cls(entry_id=entry_id, query=parameters, body=body, key=None if key is None else key.decode())


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """Who calls, for which organisation's memory, with the id and the Idempotency-Key of the request."""

    principal: Principal
    whose: Keeping
    entry_id: str
    key: str | None

    @property
    def tenant(self) -> str:
        """The organisation."""
        return self.principal.tenant

    @property
    def shared(self) -> str:
        """The participant under which the organisation shares its memories."""
        return self.whose.shared

    @property
    def masks(self) -> Masks:
        """What they may see."""
        return self.whose.masks

    @property
    def own_key(self) -> str | None:
        """The Idempotency-Key made unique to this caller: another principal's equal key is another key."""
        return None if self.key is None else digest([*self.whose.own, self.key]).hex()


_READ_AT_A_TIME = 50
"""Memories of one call that are read before other requests have their turn: at most 10 ms of CPU."""

_ROUTES: list[Route] = []
_PATH_ID_FIELDS = {"agents": "agent_id", "sessions": "session_id"}
_NOT_FOUND_ERRORS = {"memories": NoteNotFound, "agents": AgentNotFound, "sessions": SessionNotFound}


def _route(method: str, path: str, **more: Any) -> Callable[[_Run], _Run]:
    """Return a decorator that serves a method of `MemtraceApi` as a route, with its docstring as published title."""

    def serve(run: _Run) -> _Run:
        title = (run.__doc__ or "").rstrip(".")
        _ROUTES.append(Route(name=run.__name__, title=title, method=method, path=path, **more))
        return run

    return serve


class MemtraceApi:
    """Answers the routes."""

    def __init__(self, memory: Memory, settings: Settings) -> None:
        self._memory = memory
        self._memories, self._reader = memory.memories, memory.memory_reader
        self._registrations = memory.registrations
        self._shared = shared_participant(settings.rest)
        self._max_batch = settings.ingest.batch_events

    async def answer(self, route: Route, principal: Principal, parts: Asked) -> Json:
        """Answer a request to a route."""
        request = route.read(parts)
        if route.channel is not None:
            principal.need_channel(route.channel)
        caller = Caller(
            principal=principal,
            whose=keeping(principal, self._shared),
            entry_id=parts.entry_id,
            key=parts.key,
        )
        answer: Json = await getattr(self, route.name)(caller, request)
        return answer

    @_route(
        "POST",
        "/memories",
        body=(rest.MemoryInput, rest.MemoriesInput),
        keyed=True,
        answer=(rest.MemoryBody, rest.MemoriesBody),
        changes=True,
        channel=NOTE_CHANNEL,
        status=201,
        refusals=(DuplicateMemory, IdempotencyKeyReused, NoteNotFound),
    )
    async def keep_memories(self, caller: Caller, request: rest.MemoryInput | rest.MemoriesInput) -> Json:
        """Keep a memory, or several."""
        if isinstance(request, rest.MemoryInput):
            outcome = await self._memories.keep(caller.tenant, caller.whose, request.draft(), key=caller.key)
            if outcome.memory is None:
                raise AssertionError("a duplicate is refused")
            return outcome.memory.to_json(caller.tenant)
        if len(request.memories) > self._max_batch:
            raise BatchTooLarge(
                f"{len(request.memories)} memories; at most {self._max_batch} are taken at once",
                limit=self._max_batch,
            )
        drafts = await _read_drafts(request.memories, all_or_none=request.atomic is not False)
        valid_drafts = [draft for draft in drafts if isinstance(draft, MemoryDraft)]
        kept_memories: Sequence[Kept] = ()
        if valid_drafts:
            kept_memories = await self._memories.keep_all(
                caller.tenant, caller.whose, valid_drafts, whole=request.atomic is True, key=caller.key
            )
        outcomes = iter(kept_memories)
        memories, results = [], []
        for index, draft in enumerate(drafts):
            if isinstance(draft, MyriaError):
                results.append({"index": index, "status": "refused", "error": draft.message})
            elif (memory := next(outcomes).memory) is None:
                results.append({"index": index, "status": "duplicate"})
            else:
                results.append({"index": index, "status": "stored", "id": memory.memory_id})
                memories.append(memory.to_json(caller.tenant))
        return {"memories": memories, "count": len(memories), "results": results}

    @_route("GET", "/memories", query=rest.ListInput, answer=(rest.MemoryListBody,))
    async def list_memories(self, caller: Caller, request: rest.ListInput) -> Json:
        """List memories by filters."""
        return await self._list_memories(caller, request)

    async def _list_memories(
        self, caller: Caller, request: rest.ListInput, agents: Sequence[str] = (), **more: str
    ) -> Json:
        """Return a page of memories by the filters of a request, of one agent under all its names where given."""
        page = await self._reader.page(
            caller.tenant,
            caller.masks,
            request.filters(**more),
            agents=agents,
            order=request.order,
            limit=request.limit,
            offset=request.offset or 0,
            cursor=request.cursor,
        )
        return _page_json("memories", page, caller, is_first=not request.offset and request.cursor is None)

    @_route("GET", "/memories/{id}", answer=(rest.MemoryBody,), refusals=(NoteNotFound,))
    async def get_memory(self, caller: Caller, _: None) -> Json:
        """Read one memory."""
        memory = await self._reader.get(caller.tenant, caller.masks, caller.entry_id)
        answer = memory.to_json(caller.tenant)
        links = await self._memory.links.lasting(caller.tenant, memory.memory_id, may_see=caller.masks.sees)
        if links:
            answer["links"] = [
                {"from": link.from_id, "to": link.to_id, "relation_type": link.relation} for link in links
            ]
        return answer

    @_route(
        "PATCH",
        "/memories/{id}",
        body=(rest.MemoryChangeInput,),
        keyed=True,
        answer=(rest.MemoryBody,),
        changes=True,
        channel=NOTE_CHANNEL,
        refusals=(NoteNotFound, AlreadySuperseded, DuplicateMemory, IdempotencyKeyReused),
    )
    async def amend_memory(self, caller: Caller, request: rest.MemoryChangeInput) -> Json:
        """Change a memory; its id and its time stay."""
        memory = await self._memories.amend(
            caller.tenant,
            caller.entry_id,
            MemoryChanges(**request.model_dump(exclude={"version"})),
            may_see=caller.masks.sees,
            version=request.version,
            key=caller.own_key,
        )
        return memory.to_json(caller.tenant)

    @_route("DELETE", "/memories/{id}", keyed=True, changes=True, status=204, refusals=(NoteNotFound,))
    async def withdraw_memory(self, caller: Caller, _: None) -> Json:
        """Take a memory out of every answer."""
        may_see, may_append = caller.masks.sees, caller.principal.need_channel
        if not caller.entry_id.startswith(EVENT_ID_PREFIX):
            may_append(NOTE_CHANNEL)
            await self._memories.withdraw(caller.tenant, caller.entry_id, may_see=may_see, key=caller.own_key)
            return {}
        try:
            await self._memory.withdraw_events(
                caller.tenant, [caller.entry_id], "forgotten", may_see=may_see, may_append=may_append
            )
        except EventNotFound as error:
            raise NoteNotFound("memory not found") from error
        return {}

    @_route("POST", "/search", body=(rest.SearchInput,), answer=(rest.SearchBody,))
    async def search_memories(self, caller: Caller, request: rest.SearchInput) -> Json:
        """Search memories."""
        began = time.perf_counter()
        page = await self._reader.search(
            caller.tenant,
            caller.masks,
            request.query,
            request.filters(),
            order=request.order,
            limit=request.limit,
            offset=request.offset or 0,
            cursor=request.cursor,
        )
        is_first = not request.offset and request.cursor is None
        took_ms = round((time.perf_counter() - began) * 1000)
        return _page_json("results", page, caller, is_first=is_first, query_time_ms=took_ms)

    @_route(
        "POST",
        "/agents",
        body=(rest.NewAgentInput,),
        keyed=True,
        answer=(rest.AgentBody,),
        changes=True,
        channel=REGISTRY_CHANNEL,
        status=201,
        refusals=(AgentExists, IdempotencyKeyReused),
    )
    async def register_agent(self, caller: Caller, request: rest.NewAgentInput) -> Json:
        """Register an agent."""
        entry = await self._registrations.register_agent(
            caller.tenant, caller.shared, **request.model_dump(), key=caller.own_key
        )
        return entry.agent_json(caller.tenant, last_active_at=None)

    @_route("GET", "/agents", query=rest.RegistryInput, answer=(rest.AgentsBody,))
    async def list_agents(self, caller: Caller, request: rest.RegistryInput) -> Json:
        """List agents, newest first."""
        entries, has_more = await self._registrations.newest(
            caller.tenant, caller.shared, "agent", limit=request.limit, offset=request.offset or 0
        )
        agents = await self._agents_json(caller, entries)
        return {"agents": agents, "count": len(agents), "has_more": has_more}

    @_route("GET", "/agents/{id}", answer=(rest.AgentBody,), refusals=(AgentNotFound,))
    async def get_agent(self, caller: Caller, _: None) -> Json:
        """Read an agent, by its id or name."""
        entry = await self._registrations.get(caller.tenant, caller.shared, "agent", caller.entry_id)
        (agent,) = await self._agents_json(caller, [entry])
        return agent

    async def _agents_json(self, caller: Caller, entries: Sequence[Entry]) -> list[Json]:
        """Return agents in the contract's form; an agent's last activity may be recorded under its id or its name."""
        names_of_entries = [(entry, (entry.entry_id, entry.name or "")) for entry in entries]
        all_names = [name for _, names in names_of_entries for name in names]
        last_active = await self._reader.last_active(caller.tenant, caller.masks, all_names) if all_names else {}
        return [
            entry.agent_json(
                caller.tenant,
                last_active_at=max((last_active[name] for name in names if name in last_active), default=None),
            )
            for entry, names in names_of_entries
        ]

    @_route(
        "DELETE",
        "/agents/{id}",
        keyed=True,
        changes=True,
        channel=REGISTRY_CHANNEL,
        status=204,
        refusals=(AgentNotFound,),
    )
    async def delete_agent(self, caller: Caller, _: None) -> Json:
        """Take an agent out of the registry; what it kept stays."""
        await self._registrations.delete_agent(caller.tenant, caller.shared, caller.entry_id, key=caller.own_key)
        return {}

    @_route("GET", "/agents/{id}/memories", query=rest.AgentListInput, answer=(rest.MemoryListBody,))
    async def list_agent_memories(self, caller: Caller, request: rest.AgentListInput) -> Json:
        """List what an agent kept, under its id and its name."""
        agent_id, *other_names = await self._registrations.names_of(caller.tenant, caller.shared, caller.entry_id)
        return await self._list_memories(caller, request, other_names, agent_id=agent_id)

    @_route("GET", "/agents/{id}/stats", answer=(rest.StatisticsBody,))
    async def get_agent_statistics(self, caller: Caller, _: None) -> Json:
        """Count what an agent kept, under its id and its name."""
        names = await self._registrations.names_of(caller.tenant, caller.shared, caller.entry_id)
        statistics = await self._reader.statistics(caller.tenant, caller.masks, names)
        sessions, active_sessions = await self._registrations.sessions_of(caller.tenant, caller.shared, names)
        answer: Json = {
            "agent_id": caller.entry_id,
            "memory_count": statistics.memories,
            "memories_24h": statistics.memories_24h,
            "errors_24h": statistics.errors_24h,
            "session_count": sessions,
            "active_sessions": active_sessions,
            "memory_types": statistics.by_type,
        }
        if statistics.last_active_at is not None:
            answer["last_active_at"] = to_rfc3339(statistics.last_active_at)
        return answer

    @_route(
        "POST",
        "/sessions",
        body=(rest.NewSessionInput,),
        keyed=True,
        answer=(rest.SessionBody,),
        changes=True,
        channel=REGISTRY_CHANNEL,
        status=201,
        refusals=(IdempotencyKeyReused,),
    )
    async def open_session(self, caller: Caller, request: rest.NewSessionInput) -> Json:
        """Open a session of a registered agent."""
        entry = await self._registrations.open_session(
            caller.tenant, caller.shared, agent=request.agent_id, metadata=request.metadata, key=caller.own_key
        )
        return entry.session_json(caller.tenant)

    @_route("GET", "/sessions", query=rest.SessionsInput, answer=(rest.SessionsBody,))
    async def list_sessions(self, caller: Caller, request: rest.SessionsInput) -> Json:
        """List sessions, newest first."""
        names = None
        if request.agent_id is not None:
            names = await self._registrations.names_of(caller.tenant, caller.shared, request.agent_id)
        entries, has_more = await self._registrations.newest(
            caller.tenant, caller.shared, "session", agents=names, limit=request.limit, offset=request.offset or 0
        )
        sessions = [entry.session_json(caller.tenant) for entry in entries]
        return {"sessions": sessions, "count": len(sessions), "has_more": has_more}

    @_route("GET", "/sessions/{id}", answer=(rest.SessionBody,), refusals=(SessionNotFound,))
    async def get_session(self, caller: Caller, _: None) -> Json:
        """Read a session."""
        entry = await self._registrations.get(caller.tenant, caller.shared, "session", caller.entry_id)
        return entry.session_json(caller.tenant)

    @_route(
        "PUT",
        "/sessions/{id}",
        body=(rest.SessionChangeInput,),
        answer=(rest.SessionBody,),
        changes=True,
        channel=REGISTRY_CHANNEL,
        refusals=(SessionNotFound,),
    )
    async def change_session(self, caller: Caller, request: rest.SessionChangeInput) -> Json:
        """Close a session, or change it."""
        entry = await self._registrations.change_session(
            caller.tenant, caller.shared, caller.entry_id, status=request.status, metadata=request.metadata
        )
        return entry.session_json(caller.tenant)

    @_route("GET", "/sessions/{id}/memories", query=rest.ListInput, answer=(rest.MemoryListBody,))
    async def list_session_memories(self, caller: Caller, request: rest.ListInput) -> Json:
        """List what was kept in a session."""
        return await self._list_memories(caller, request, session_id=caller.entry_id)

    @_route(
        "POST",
        "/sessions/{id}/context",
        body=(rest.SessionContextInput,),
        needs_body=False,
        answer=(rest.ContextBody,),
    )
    async def get_session_context(self, caller: Caller, request: rest.SessionContextInput) -> Json:
        """Write the context of a session, for a prompt."""
        context = await self._reader.context(
            caller.tenant,
            caller.masks,
            request.filters(session_id=caller.entry_id),
            query=request.query,
            max_tokens=request.max_tokens,
        )
        return {
            "session_id": caller.entry_id,
            "context": context.text,
            "memory_count": context.memories,
            **_empty_note(nothing=context.is_empty),
        }


ROUTES = tuple(_ROUTES)
"""Every route that needs a credential: what requests are told apart by, documents are made of and tests ask."""

_BY_NAME = {route.name: route for route in ROUTES}
_PATTERNS = tuple((route, re.compile(route.path.replace("{id}", "([^/]*)"))) for route in ROUTES)
_ID = re.compile(r"[\x21-\x7e]{1,200}")


def match(method: str, raw_path: bytes) -> tuple[Route, str]:
    """Return the route of a request, and the id in its path, empty where the route has none.

    Args:
        raw_path: as it was sent, percent-encoded.

    Raises:
        PathNotFound: nothing is served there.
        MethodNotAllowed: something is, by other methods; the detail `allow` names them.
        InvalidText: an id that is no text in UTF-8, or holds NUL.
        NoteNotFound, AgentNotFound, SessionNotFound: an id that nothing can have.
    """
    path = raw_path.decode("latin-1").partition("?")[0].removeprefix(rest.PREFIX).removesuffix("/")
    candidates = {
        route.method: (route, path_match) for route, pattern in _PATTERNS if (path_match := pattern.fullmatch(path))
    }
    if not candidates:
        raise PathNotFound(f"nothing is served here; {rest.PREFIX}/openapi.json says what is")
    if method not in candidates:
        allow = ", ".join(sorted(candidates))
        raise MethodNotAllowed(f"this path takes {allow}", allow=allow)
    route, path_match = candidates[method]
    if not path_match.groups():
        return route, ""
    try:
        entry_id = unquote(path_match[1], errors="strict")
    except UnicodeDecodeError as error:
        raise InvalidText("the id in the path is no UTF-8", field="id") from error
    if _ID.fullmatch(entry_id) is None:
        kind = path.split("/")[1]
        raise _NOT_FOUND_ERRORS[kind](f"{'memory' if kind == 'memories' else kind[:-1]} not found")
    return route, entry_id


def handlers(api: MemtraceApi) -> Mapping[str, ToolHandler]:
    """Return the handlers of the tools, by tool name; each tool runs a route."""

    def tool(route: str, request_of: Callable[[Any], Asked]) -> ToolHandler:
        async def run(principal: Principal, arguments: Any) -> ShownAnswer:
            content = await api.answer(_BY_NAME[route], principal, request_of(arguments))
            if route == "get_session_context":
                return ShownAnswer(content=content, text=content["context"] + content.get("note", ""))
            # The contract shows JSON with indents.
            return ShownAnswer(content=content, text=orjson.dumps(content, option=orjson.OPT_INDENT_2).decode())

        return run

    def read(model: type[Input], arguments: Any) -> Json:
        return inputs.read(model, arguments).model_dump(exclude_none=True)

    def decision_request(arguments: Any) -> Asked:
        decision = read(rest.DecideInput, arguments)
        return Asked(
            body={
                "agent_id": decision["agent_id"],
                "content": decision["decision"],
                "memory_type": "decision",
                "event_type": "decision",
                "metadata": {"reasoning": decision["reasoning"]},
            }
        )

    def session_request(arguments: Any) -> Asked:
        body = read(rest.ContextToolInput, arguments)
        return Asked(entry_id=body.pop("session_id"), body=body)

    return {
        "memtrace_remember": tool("keep_memories", lambda arguments: Asked(body=arguments)),
        "memtrace_recall": tool("list_memories", lambda arguments: Asked(query=read(rest.RecallToolInput, arguments))),
        "memtrace_search": tool("search_memories", lambda arguments: Asked(body=read(rest.SearchToolInput, arguments))),
        "memtrace_decide": tool("keep_memories", decision_request),
        "memtrace_session_create": tool("open_session", lambda arguments: Asked(body=arguments)),
        "memtrace_session_context": tool("get_session_context", session_request),
        "memtrace_agent_register": tool(
            "register_agent", lambda arguments: Asked(body=read(rest.RegisterToolInput, arguments))
        ),
    }


async def _read_drafts(items: Sequence[Any], *, all_or_none: bool) -> list[MemoryDraft | MyriaError]:
    """Return for each item its draft, or the error that refuses it.

    500 items of 4 MiB take up to 0.1 s of CPU, so other requests are let in after every `_READ_AT_A_TIME`.

    Raises:
        MyriaError: the first such error, where `all_or_none`; its detail `index` names the item.
    """
    drafts: list[MemoryDraft | MyriaError] = []
    for index, item in enumerate(items):
        if index % _READ_AT_A_TIME == 0:
            await asyncio.sleep(0)
        try:
            drafts.append(inputs.read(rest.MemoryInput, _as_object(item)).draft())
        except MyriaError as error:
            refusal = type(error)(f"memories[{index}]: {error.message}", **{**error.details, "index": index})
            if all_or_none:
                raise refusal from error
            drafts.append(refusal)
    return drafts


def _as_object(body: Any) -> Json:
    if body is None:
        return {}
    if not isinstance(body, dict):
        raise InvalidArgument("invalid request body: it must be a JSON object", field="")
    return body


def _page_json(name: str, page: MemoryPage, caller: Caller, *, is_first: bool, **more: Any) -> Json:
    """Return a page in the contract's form, with its memories under the key `name` and `more` beside them."""
    memories = [memory.to_json(caller.tenant) for memory in page.memories]
    listing: Json = {name: memories, "count": len(memories), **more, "has_more": page.has_more}
    if page.cursor is not None:
        listing["next_cursor"] = page.cursor
    if page.scanned is not None:
        listing["scanned"] = page.scanned
    return listing | _empty_note(nothing=is_first and not memories and page.scanned is None)


def _empty_note(*, nothing: bool) -> Json:
    """Return the note that every API adds to an answer without results, since an empty list may look like a cut one."""
    return {"note": NOTHING} if nothing else {}
