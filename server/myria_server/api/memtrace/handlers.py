"""Memtrace's REST API: its routes, each beside what answers it, whose docstring is published as the route's title."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from myria.access.principal import Principal
from myria.db.clock import to_rfc3339
from myria.errors import (
    AgentExists,
    AgentNotFound,
    AlreadySuperseded,
    BatchTooLarge,
    DuplicateMemory,
    EventNotFound,
    IdempotencyKeyReused,
    MyriaError,
    NoteHeld,
    NoteNotFound,
    SessionNotFound,
)
from myria.log.canonical import digest
from myria.memory import Memory
from myria.notes.answertext import NOTHING
from myria.notes.memories.commands import Kept
from myria.notes.memories.model import MemoryChanges, MemoryDraft
from myria.notes.memories.reading import EVENT_ID_PREFIX, MemoryPage
from myria.notes.memories.sharing import Keeping, keeping, shared_participant
from myria.notes.model import NOTE_CHANNEL
from myria.notes.registrations.model import REGISTRY_CHANNEL, Entry
from myria.settings import Settings
from myria_server.api.api_call import ApiCall, Json
from myria_server.api.core import inputs
from myria_server.api.memtrace import answer_schemas as answers
from myria_server.api.memtrace import schemas as rest
from myria_server.api.memtrace.routing import Routes, as_object


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


_READ_AT_A_TIME = 50
"""Memories of one call that are read before other requests have their turn: at most 10 ms of CPU."""

_TABLE = Routes()


@_TABLE.serve(
    "POST",
    "/memories",
    answer=(answers.MemoryBody, answers.MemoriesBody),
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


@_TABLE.serve("GET", "/memories", answer=(answers.MemoryListBody,))
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


@_TABLE.serve("GET", "/memories/{id}", answer=(answers.MemoryBody,), refusals=(NoteNotFound,))
async def get_memory(call: RestCall, request: None) -> Json:
    """Read one memory."""
    memory = await call.memory.memory_reader.get(call.tenant, call.whose.masks, call.entry_id)
    answer = memory.to_json(call.tenant)
    links = await call.memory.links.lasting(call.tenant, memory.memory_id, may_see=call.whose.masks.sees)
    if links:
        answer["links"] = [{"from": link.from_id, "to": link.to_id, "relation_type": link.relation} for link in links]
    return answer


@_TABLE.serve(
    "PATCH",
    "/memories/{id}",
    answer=(answers.MemoryBody,),
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


@_TABLE.serve("DELETE", "/memories/{id}", refusals=(NoteNotFound, NoteHeld))
async def withdraw_memory(call: RestCall, request: None) -> Json:
    """Take a memory out of every answer."""
    may_see, may_append = call.whose.masks.sees, call.principal.need_channel
    if not call.entry_id.startswith(EVENT_ID_PREFIX):
        may_append(NOTE_CHANNEL)
        await call.memory.memories.withdraw(
            call.tenant, call.entry_id, may_see=may_see, key=call.own_key, by=call.principal.actor
        )
        return {}
    try:
        await call.memory.withdrawals.withdraw(
            call.tenant,
            [call.entry_id],
            "forgotten",
            may_see=may_see,
            may_append=may_append,
            by=call.principal.actor,
        )
    except EventNotFound as error:
        raise NoteNotFound("memory not found") from error
    return {}


@_TABLE.serve("POST", "/search", answer=(answers.SearchBody,), changes=False)
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


@_TABLE.serve("POST", "/agents", answer=(answers.AgentBody,), status=201, refusals=(AgentExists, IdempotencyKeyReused))
async def register_agent(call: RestCall, request: rest.NewAgentInput) -> Json:
    """Register an agent."""
    call.principal.need_channel(REGISTRY_CHANNEL)
    entry = await call.memory.registrations.register_agent(
        call.tenant, call.whose.shared, **request.model_dump(), key=call.own_key
    )
    return entry.agent_json(call.tenant, last_active_at=None)


@_TABLE.serve("GET", "/agents", answer=(answers.AgentsBody,))
async def list_agents(call: RestCall, request: rest.RegistryInput) -> Json:
    """List agents, newest first."""
    entries, has_more = await call.memory.registrations.newest(
        call.tenant, call.whose.shared, "agent", limit=request.limit, offset=request.offset or 0
    )
    agents = await _agents_json(call, entries)
    return {"agents": agents, "count": len(agents), "has_more": has_more}


@_TABLE.serve("GET", "/agents/{id}", answer=(answers.AgentBody,), refusals=(AgentNotFound,))
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


@_TABLE.serve("DELETE", "/agents/{id}", refusals=(AgentNotFound,))
async def delete_agent(call: RestCall, request: None) -> Json:
    """Take an agent out of the registry; what it kept stays."""
    call.principal.need_channel(REGISTRY_CHANNEL)
    await call.memory.registrations.delete_agent(call.tenant, call.whose.shared, call.entry_id, key=call.own_key)
    return {}


@_TABLE.serve("GET", "/agents/{id}/memories", answer=(answers.MemoryListBody,))
async def list_agent_memories(call: RestCall, request: rest.AgentListInput) -> Json:
    """List what an agent kept, under its id and its name."""
    agent_id, *other_names = await call.memory.registrations.names_of(call.tenant, call.whose.shared, call.entry_id)
    return await list_memories(call, request, agents=other_names, agent_id=agent_id)


@_TABLE.serve("GET", "/agents/{id}/stats", answer=(answers.StatisticsBody,))
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


@_TABLE.serve("POST", "/sessions", answer=(answers.SessionBody,), status=201, refusals=(IdempotencyKeyReused,))
async def open_session(call: RestCall, request: rest.NewSessionInput) -> Json:
    """Open a session of a registered agent."""
    call.principal.need_channel(REGISTRY_CHANNEL)
    entry = await call.memory.registrations.open_session(
        call.tenant, call.whose.shared, agent=request.agent_id, metadata=request.metadata, key=call.own_key
    )
    return entry.session_json(call.tenant)


@_TABLE.serve("GET", "/sessions", answer=(answers.SessionsBody,))
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


@_TABLE.serve("GET", "/sessions/{id}", answer=(answers.SessionBody,), refusals=(SessionNotFound,))
async def get_session(call: RestCall, request: None) -> Json:
    """Read a session."""
    entry = await call.memory.registrations.get(call.tenant, call.whose.shared, "session", call.entry_id)
    return entry.session_json(call.tenant)


@_TABLE.serve("PUT", "/sessions/{id}", answer=(answers.SessionBody,), refusals=(SessionNotFound,), keyed=False)
async def change_session(call: RestCall, request: rest.SessionChangeInput) -> Json:
    """Close a session, or change it."""
    call.principal.need_channel(REGISTRY_CHANNEL)
    entry = await call.memory.registrations.change_session(
        call.tenant, call.whose.shared, call.entry_id, status=request.status, metadata=request.metadata
    )
    return entry.session_json(call.tenant)


@_TABLE.serve("GET", "/sessions/{id}/memories", answer=(answers.MemoryListBody,))
async def list_session_memories(call: RestCall, request: rest.ListInput) -> Json:
    """List what was kept in a session."""
    return await list_memories(call, request, session_id=call.entry_id)


@_TABLE.serve("POST", "/sessions/{id}/context", needs_body=False, answer=(answers.ContextBody,), changes=False)
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


ROUTES = tuple(_TABLE)
"""Every route that needs a credential: what documents are made of and tests ask."""

match = _TABLE.match


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
            drafts.append(inputs.read(rest.MemoryInput, as_object(item)).draft())
        except MyriaError as error:
            refusal = type(error)(f"memories[{index}]: {error.message}", **{**error.details, "index": index})
            if all_or_none:
                raise refusal from error
            drafts.append(refusal)
    return drafts


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
