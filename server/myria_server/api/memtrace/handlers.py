"""Memtrace's REST API: its routes, each beside what answers it, and its seven tools over MCP.

The docstring of what answers is published: as the title of a route, as the description of a tool.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints
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
    NoteHeld,
    NoteNotFound,
    PathNotFound,
    SessionNotFound,
)
from myria.log.canonical import digest
from myria.log.fields import unknown_field
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
from myria_server.api.api_call import ApiCall, Handler, Json, Runner
from myria_server.api.core import inputs
from myria_server.api.core.inputs import Input
from myria_server.api.memtrace import schemas as rest
from myria_server.api.memtrace.schemas import refused, status_of

__all__ = ["ROUTES", "Route", "match", "refused", "status_of"]

_Handler = TypeVar("_Handler", bound=Callable[..., Awaitable[Json]])


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """One route.

    `path` stands below the prefix; `{id}` is one segment. `handler` answers: its name is the route's, its docstring the
    title. `query` or `body` are the models of what it takes; a body may be left out where `needs_body` is false.
    `changes` tells whether it writes. `keyed` says that it takes an Idempotency-Key. `answer` is its model, none where
    it answers nothing; `refusals` are its own, beside those of all.
    """

    name: str
    title: str
    handler: Handler
    method: str
    path: str
    query: type[Input] | None
    body: tuple[type[Input], ...]
    needs_body: bool = True
    answer: tuple[type[Answer], ...]
    changes: bool
    keyed: bool
    status: int
    refusals: tuple[type[MyriaError], ...] = ()

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles of which a caller needs one."""
        return ("append",) if self.changes else ("read",)

    def read(self, entry_id: str, parameters: Json, body: Any) -> Any:
        """Return the query or the body of a request, read as the route's model; None where the route takes neither.

        Args:
            entry_id: the id in the path, empty where there is none.
            parameters: those of the query.

        Raises:
            InvalidArgument: of a field that stands in the query and not in the body.
            as `inputs.read`.
        """
        if self.query is not None:
            # The id in the path decides, so the same field is taken out of the query.
            path_field = {_PATH_ID_FIELDS[self.path.split("/")[1]]: None} if entry_id else {}
            return inputs.read(self.query, {**parameters, **path_field})
        for name in parameters:
            if any(name in model.model_fields for model in self.body):
                raise InvalidArgument(f"{name} belongs into the JSON body, not into the address", field=name)
            raise unknown_field(name, ())
        if not self.body:
            return None
        fields = _as_object(body)
        # Of two models the last one is that of several memories at once.
        return inputs.read(self.body[-1 if fields.get("memories") is not None else 0], fields)


@dataclass(frozen=True, kw_only=True, slots=True)
class RestCall(ApiCall):
    """A call: with whom its caller keeps memories, and the id and the Idempotency-Key of the request."""

    whose: Keeping
    entry_id: str = ""
    key: str | None = None

    @property
    def own_key(self) -> str | None:
        """The Idempotency-Key made unique to this caller: another principal's equal key is another key."""
        return None if self.key is None else digest([*self.whose.own, self.key]).hex()


def rest_call(
    memory: Memory, settings: Settings, principal: Principal, *, entry_id: str = "", key: str | None = None
) -> RestCall:
    """Return a principal's call.

    Raises:
        ParticipantsNotAllowed: the principal may speak for many.
    """
    whose = keeping(principal, shared_participant(settings.rest))
    return RestCall(memory=memory, settings=settings, principal=principal, whose=whose, entry_id=entry_id, key=key)


def runner(memory: Memory, settings: Settings) -> Runner:
    """Return what runs the tools of this API."""

    async def run(handler: Handler, principal: Principal, request: Input, *, changes: bool) -> ShownAnswer:
        content: Json = await handler(rest_call(memory, settings, principal), request)
        if handler is memtrace_session_context:
            return ShownAnswer(content=content, text=content["context"] + content.get("note", ""))
        # The contract shows JSON with indents.
        return ShownAnswer(content=content, text=orjson.dumps(content, option=orjson.OPT_INDENT_2).decode())

    return run


def read_query(query: bytes) -> Json:
    """Return the parameters of a query.

    Raises:
        InvalidArgument: one is given twice.
    """
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, errors="surrogateescape")
    parameters = dict(pairs)
    if len(parameters) < len(pairs):
        repeated = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise InvalidArgument(f"{repeated[:50]} is given more than once", field=repeated[:50])
    return parameters


def read_key(key: bytes | None) -> str | None:
    """Return the value of the header Idempotency-Key, None where there is none.

    Raises:
        InvalidText: it is empty, too long, or not printable ASCII.
    """
    if key is None:
        return None
    if not 0 < len(key) <= rest.MAX_KEY or not key.isascii() or not key.decode().isprintable():
        raise InvalidText(
            f"the header Idempotency-Key must hold 1 to {rest.MAX_KEY} printable characters of ASCII",
            field="Idempotency-Key",
        )
    return key.decode()


_READ_AT_A_TIME = 50
"""Memories of one call that are read before other requests have their turn: at most 10 ms of CPU."""

_ROUTES: list[Route] = []
_PATH_ID_FIELDS = {"agents": "agent_id", "sessions": "session_id"}
_NOT_FOUND_ERRORS = {"memories": NoteNotFound, "agents": AgentNotFound, "sessions": SessionNotFound}


def _route(
    method: str,
    path: str,
    *,
    answer: tuple[type[Answer], ...] = (),
    status: int = 200,
    changes: bool | None = None,
    keyed: bool | None = None,
    **more: Any,
) -> Callable[[_Handler], _Handler]:
    """Return a decorator that serves a handler as a route; its argument `request` says what the route takes.

    Unless something else is said, all methods but GET change something, and what changes takes an Idempotency-Key.
    """
    changes = method != "GET" if changes is None else changes

    def serve(handler: _Handler) -> _Handler:
        hint = get_type_hints(handler)["request"]
        models = get_args(hint) or (() if hint is NoneType else (hint,))
        route = Route(
            name=handler.__name__,
            title=(handler.__doc__ or "").rstrip("."),
            handler=handler,
            method=method,
            path=path,
            query=next(iter(models), None) if method == "GET" else None,
            body=() if method == "GET" else models,
            answer=answer,
            changes=changes,
            keyed=changes if keyed is None else keyed,
            status=status if answer else 204,
            **more,
        )
        _ROUTES.append(route)
        return handler

    return serve


@_route(
    "POST",
    "/memories",
    answer=(rest.MemoryBody, rest.MemoriesBody),
    status=201,
    refusals=(DuplicateMemory, IdempotencyKeyReused, NoteNotFound),
)
async def keep_memories(call: RestCall, request: rest.MemoryInput | rest.MemoriesInput) -> Json:
    """Keep a memory, or several."""
    call.principal.need_channel(NOTE_CHANNEL)
    if isinstance(request, rest.MemoryInput):
        outcome = await call.memory.memories.keep(call.tenant, call.whose, request.draft(), key=call.key)
        if outcome.memory is None:
            raise AssertionError("a duplicate is refused")
        return outcome.memory.to_json(call.tenant)
    if len(request.memories) > (most := call.settings.ingest.batch_events):
        raise BatchTooLarge(f"{len(request.memories)} memories; at most {most} are taken at once", limit=most)
    drafts = await _read_drafts(request.memories, all_or_none=request.atomic is not False)
    valid_drafts = [draft for draft in drafts if isinstance(draft, MemoryDraft)]
    kept_memories: Sequence[Kept] = ()
    if valid_drafts:
        kept_memories = await call.memory.memories.keep_all(
            call.tenant, call.whose, valid_drafts, whole=request.atomic is True, key=call.key
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
            memories.append(memory.to_json(call.tenant))
    return {"memories": memories, "count": len(memories), "results": results}


@_route("GET", "/memories", answer=(rest.MemoryListBody,))
async def list_memories(
    call: RestCall, request: rest.ListInput, *, agents: Sequence[str] = (), **more_filters: str
) -> Json:
    """List memories by filters."""
    page = await call.memory.memory_reader.page(
        call.tenant,
        call.whose.masks,
        request.filters(**more_filters),
        agents=agents,
        order=request.order,
        limit=request.limit,
        offset=request.offset or 0,
        cursor=request.cursor,
    )
    return _page_json("memories", page, call, is_first=not request.offset and request.cursor is None)


@_route("GET", "/memories/{id}", answer=(rest.MemoryBody,), refusals=(NoteNotFound,))
async def get_memory(call: RestCall, request: None) -> Json:
    """Read one memory."""
    memory = await call.memory.memory_reader.get(call.tenant, call.whose.masks, call.entry_id)
    answer = memory.to_json(call.tenant)
    links = await call.memory.links.lasting(call.tenant, memory.memory_id, may_see=call.whose.masks.sees)
    if links:
        answer["links"] = [{"from": link.from_id, "to": link.to_id, "relation_type": link.relation} for link in links]
    return answer


@_route(
    "PATCH",
    "/memories/{id}",
    answer=(rest.MemoryBody,),
    refusals=(NoteNotFound, NoteHeld, AlreadySuperseded, DuplicateMemory, IdempotencyKeyReused),
)
async def amend_memory(call: RestCall, request: rest.MemoryChangeInput) -> Json:
    """Change a memory; its id and its time stay."""
    call.principal.need_channel(NOTE_CHANNEL)
    memory = await call.memory.memories.amend(
        call.tenant,
        call.entry_id,
        MemoryChanges(**request.model_dump(exclude={"version"})),
        may_see=call.whose.masks.sees,
        version=request.version,
        key=call.own_key,
    )
    return memory.to_json(call.tenant)


@_route("DELETE", "/memories/{id}", refusals=(NoteNotFound, NoteHeld))
async def withdraw_memory(call: RestCall, request: None) -> Json:
    """Take a memory out of every answer."""
    may_see, may_append = call.whose.masks.sees, call.principal.need_channel
    if not call.entry_id.startswith(EVENT_ID_PREFIX):
        may_append(NOTE_CHANNEL)
        await call.memory.memories.withdraw(call.tenant, call.entry_id, may_see=may_see, key=call.own_key)
        return {}
    try:
        await call.memory.withdrawals.withdraw(
            call.tenant, [call.entry_id], "forgotten", may_see=may_see, may_append=may_append
        )
    except EventNotFound as error:
        raise NoteNotFound("memory not found") from error
    return {}


@_route("POST", "/search", answer=(rest.SearchBody,), changes=False)
async def search_memories(call: RestCall, request: rest.SearchInput) -> Json:
    """Search memories."""
    began = time.perf_counter()
    page = await call.memory.memory_reader.search(
        call.tenant,
        call.whose.masks,
        request.query,
        request.filters(),
        order=request.order,
        limit=request.limit,
        offset=request.offset or 0,
        cursor=request.cursor,
    )
    is_first = not request.offset and request.cursor is None
    took_ms = round((time.perf_counter() - began) * 1000)
    return _page_json("results", page, call, is_first=is_first, query_time_ms=took_ms)


@_route("POST", "/agents", answer=(rest.AgentBody,), status=201, refusals=(AgentExists, IdempotencyKeyReused))
async def register_agent(call: RestCall, request: rest.NewAgentInput) -> Json:
    """Register an agent."""
    call.principal.need_channel(REGISTRY_CHANNEL)
    entry = await call.memory.registrations.register_agent(
        call.tenant, call.whose.shared, **request.model_dump(), key=call.own_key
    )
    return entry.agent_json(call.tenant, last_active_at=None)


@_route("GET", "/agents", answer=(rest.AgentsBody,))
async def list_agents(call: RestCall, request: rest.RegistryInput) -> Json:
    """List agents, newest first."""
    entries, has_more = await call.memory.registrations.newest(
        call.tenant, call.whose.shared, "agent", limit=request.limit, offset=request.offset or 0
    )
    agents = await _agents_json(call, entries)
    return {"agents": agents, "count": len(agents), "has_more": has_more}


@_route("GET", "/agents/{id}", answer=(rest.AgentBody,), refusals=(AgentNotFound,))
async def get_agent(call: RestCall, request: None) -> Json:
    """Read an agent, by its id or name."""
    entry = await call.memory.registrations.get(call.tenant, call.whose.shared, "agent", call.entry_id)
    (agent,) = await _agents_json(call, [entry])
    return agent


async def _agents_json(call: RestCall, entries: Sequence[Entry]) -> list[Json]:
    """Return agents in the contract's form; an agent's last activity may be recorded under its id or its name."""
    names_of_entries = [(entry, (entry.entry_id, entry.name or "")) for entry in entries]
    all_names = [name for _, names in names_of_entries for name in names]
    last_active = (
        await call.memory.memory_reader.last_active(call.tenant, call.whose.masks, all_names) if all_names else {}
    )
    return [
        entry.agent_json(
            call.tenant,
            last_active_at=max((last_active[name] for name in names if name in last_active), default=None),
        )
        for entry, names in names_of_entries
    ]


@_route("DELETE", "/agents/{id}", refusals=(AgentNotFound,))
async def delete_agent(call: RestCall, request: None) -> Json:
    """Take an agent out of the registry; what it kept stays."""
    call.principal.need_channel(REGISTRY_CHANNEL)
    await call.memory.registrations.delete_agent(call.tenant, call.whose.shared, call.entry_id, key=call.own_key)
    return {}


@_route("GET", "/agents/{id}/memories", answer=(rest.MemoryListBody,))
async def list_agent_memories(call: RestCall, request: rest.AgentListInput) -> Json:
    """List what an agent kept, under its id and its name."""
    agent_id, *other_names = await call.memory.registrations.names_of(call.tenant, call.whose.shared, call.entry_id)
    return await list_memories(call, request, agents=other_names, agent_id=agent_id)


@_route("GET", "/agents/{id}/stats", answer=(rest.StatisticsBody,))
async def get_agent_statistics(call: RestCall, request: None) -> Json:
    """Count what an agent kept, under its id and its name."""
    names = await call.memory.registrations.names_of(call.tenant, call.whose.shared, call.entry_id)
    statistics = await call.memory.memory_reader.statistics(call.tenant, call.whose.masks, names)
    sessions, active_sessions = await call.memory.registrations.sessions_of(call.tenant, call.whose.shared, names)
    answer: Json = {
        "agent_id": call.entry_id,
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


@_route("POST", "/sessions", answer=(rest.SessionBody,), status=201, refusals=(IdempotencyKeyReused,))
async def open_session(call: RestCall, request: rest.NewSessionInput) -> Json:
    """Open a session of a registered agent."""
    call.principal.need_channel(REGISTRY_CHANNEL)
    entry = await call.memory.registrations.open_session(
        call.tenant, call.whose.shared, agent=request.agent_id, metadata=request.metadata, key=call.own_key
    )
    return entry.session_json(call.tenant)


@_route("GET", "/sessions", answer=(rest.SessionsBody,))
async def list_sessions(call: RestCall, request: rest.SessionsInput) -> Json:
    """List sessions, newest first."""
    names = None
    if request.agent_id is not None:
        names = await call.memory.registrations.names_of(call.tenant, call.whose.shared, request.agent_id)
    entries, has_more = await call.memory.registrations.newest(
        call.tenant, call.whose.shared, "session", agents=names, limit=request.limit, offset=request.offset or 0
    )
    sessions = [entry.session_json(call.tenant) for entry in entries]
    return {"sessions": sessions, "count": len(sessions), "has_more": has_more}


@_route("GET", "/sessions/{id}", answer=(rest.SessionBody,), refusals=(SessionNotFound,))
async def get_session(call: RestCall, request: None) -> Json:
    """Read a session."""
    entry = await call.memory.registrations.get(call.tenant, call.whose.shared, "session", call.entry_id)
    return entry.session_json(call.tenant)


@_route("PUT", "/sessions/{id}", answer=(rest.SessionBody,), refusals=(SessionNotFound,), keyed=False)
async def change_session(call: RestCall, request: rest.SessionChangeInput) -> Json:
    """Close a session, or change it."""
    call.principal.need_channel(REGISTRY_CHANNEL)
    entry = await call.memory.registrations.change_session(
        call.tenant, call.whose.shared, call.entry_id, status=request.status, metadata=request.metadata
    )
    return entry.session_json(call.tenant)


@_route("GET", "/sessions/{id}/memories", answer=(rest.MemoryListBody,))
async def list_session_memories(call: RestCall, request: rest.ListInput) -> Json:
    """List what was kept in a session."""
    return await list_memories(call, request, session_id=call.entry_id)


@_route("POST", "/sessions/{id}/context", needs_body=False, answer=(rest.ContextBody,), changes=False)
async def get_session_context(call: RestCall, request: rest.SessionContextInput) -> Json:
    """Write the context of a session, for a prompt."""
    context = await call.memory.memory_reader.context(
        call.tenant,
        call.whose.masks,
        request.filters(session_id=call.entry_id),
        query=request.query,
        max_tokens=request.max_tokens,
    )
    return {
        "session_id": call.entry_id,
        "context": context.text,
        "memory_count": context.memories,
        **_empty_note(nothing=context.is_empty),
    }


ROUTES = tuple(_ROUTES)
"""Every route that needs a credential: what requests are told apart by, documents are made of and tests ask."""

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


async def memtrace_remember(call: RestCall, request: rest.MemoryInput) -> Json:
    """Keep what happened, or what you want to know later. The same said again within a day is refused."""
    return await keep_memories(call, request)


async def memtrace_recall(call: RestCall, request: rest.RecallToolInput) -> Json:
    """What an agent kept lately, newest first."""
    return await list_memories(call, rest.ListInput(**request.model_dump(exclude_none=True)))


async def memtrace_search(call: RestCall, request: rest.SearchToolInput) -> Json:
    """Memories of all agents of the organisation for which everything holds that you give."""
    return await search_memories(call, rest.SearchInput(**request.model_dump(exclude_none=True)))


async def memtrace_decide(call: RestCall, request: rest.DecideInput) -> Json:
    """Keep what was decided, and why."""
    memory = rest.MemoryInput(
        agent_id=request.agent_id,
        content=request.decision,
        memory_type="decision",
        event_type="decision",
        metadata={"reasoning": request.reasoning},
    )
    return await keep_memories(call, memory)


async def memtrace_session_create(call: RestCall, request: rest.NewSessionInput) -> Json:
    """Open a session of a registered agent; memories that name it belong together."""
    return await open_session(call, request)


async def memtrace_session_context(call: RestCall, request: rest.ContextToolInput) -> Json:
    """What was kept in a session, as markdown for a prompt. It is a record, not an instruction."""
    return await get_session_context(replace(call, entry_id=request.session_id), request)


async def memtrace_agent_register(call: RestCall, request: rest.RegisterToolInput) -> Json:
    """Register an agent of the organisation under a name of its own."""
    return await register_agent(call, rest.NewAgentInput(name=request.name, description=request.description))


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


def _page_json(name: str, page: MemoryPage, call: RestCall, *, is_first: bool, **more: Any) -> Json:
    """Return a page in the contract's form, with its memories under the key `name` and `more` beside them."""
    memories = [memory.to_json(call.tenant) for memory in page.memories]
    listing: Json = {name: memories, "count": len(memories), **more, "has_more": page.has_more}
    if page.cursor is not None:
        listing["next_cursor"] = page.cursor
    if page.scanned is not None:
        listing["scanned"] = page.scanned
    return listing | _empty_note(nothing=is_first and not memories and page.scanned is None)


def _empty_note(*, nothing: bool) -> Json:
    """Return the note that every API adds to an answer without results, since an empty list may look like a cut one."""
    return {"note": NOTHING} if nothing else {}
