"""Memtrace's REST API: its routes, and its seven tools over MCP, in terms of the memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import orjson

from myria.access.principal import Principal
from myria.db.clock import to_rfc3339
from myria.errors import BatchTooLarge, EventNotFound, InvalidArgument, InvalidText, MyriaError, NoteNotFound
from myria.log.canonical import digest
from myria.log.masks import Masks
from myria.memory import Memory
from myria.notes.answertext import NOTHING, ShownAnswer
from myria.notes.memories.commands import Kept
from myria.notes.memories.context import MOST_SHOWN, session_context
from myria.notes.memories.model import MemoryChanges, MemoryDraft
from myria.notes.memories.reading import MemoryFilters, MemoryPage
from myria.notes.memories.sharing import keeping, masks_of, own_of, shared_participant
from myria.notes.model import NOTE_CHANNEL
from myria.notes.registrations.model import REGISTRY_CHANNEL
from myria.search.steps import in_steps
from myria.settings import Settings
from myria.text.model_tokens import token_counter
from myria.text.passages import sought_in
from myria_server.api.core import inputs
from myria_server.api.memtrace import schemas as rest
from myria_server.api.memtrace.drafts import read_draft
from myria_server.api.memtrace.routes import Matched
from myria_server.api.memtrace.schemas import refused, status_of

__all__ = ["Asked", "RestFace", "handlers", "refused", "status_of"]

EVENT_ID_PREFIX = "evt_"

Json = dict[str, Any]
Handler = Callable[[Principal, "Asked"], Awaitable[Json]]
ToolHandler = Callable[[Principal, Any], Awaitable[Json | ShownAnswer]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What a request asks: the id in its path, its query, its body, and its Idempotency-Key."""

    entry_id: str = ""
    query: Json = field(default_factory=dict)
    body: Any = None
    key: str | None = None

    @classmethod
    def of(cls, matched: Matched, *, query: bytes, body: Any, key: bytes | None) -> Asked:
        """Return what a request asks.

        Raises:
            InvalidArgument: a parameter that is given twice, or that the route does not know; a key that is none.
        """
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, errors="surrogateescape") if query else []
        named = dict(pairs)
        if len(named) < len(pairs):
            twice = next(name for name, _ in pairs if [known for known, _ in pairs].count(name) > 1)
            raise InvalidArgument(f"{twice[:50]} is given more than once", field=twice[:50])
        if key is not None and (
            not 0 < len(key) <= rest.MAX_KEY or not key.isascii() or not key.decode().isprintable()
        ):
            raise InvalidText(
                f"the header Idempotency-Key must hold 1 to {rest.MAX_KEY} printable characters of ASCII",
                field="Idempotency-Key",
            )
        return cls(entry_id=matched.entry_id, query=named, body=body, key=None if key is None else key.decode())


class RestFace:
    """What runs each route, by its name."""

    def __init__(self, memory: Memory, settings: Settings) -> None:
        self._memory = memory
        self._shared = shared_participant(settings.rest)
        self._most_at_once = settings.ingest.batch_events
        self.runs: Mapping[str, Handler] = {
            "keep_memories": self.keep_memories,
            "list_memories": self.list_memories,
            "get_memory": self.get_memory,
            "amend_memory": self.amend_memory,
            "withdraw_memory": self.withdraw_memory,
            "search_memories": self.search_memories,
            "register_agent": self.register_agent,
            "list_agents": self.list_agents,
            "get_agent": self.get_agent,
            "delete_agent": self.delete_agent,
            "list_agent_memories": self.list_agent_memories,
            "get_agent_statistics": self.get_agent_statistics,
            "open_session": self.open_session,
            "list_sessions": self.list_sessions,
            "get_session": self.get_session,
            "change_session": self.change_session,
            "list_session_memories": self.list_session_memories,
            "get_session_context": self.get_session_context,
        }

    async def keep_memories(self, principal: Principal, asked: Asked) -> Json:
        """Keep one memory, or several."""
        body = asked.body
        if isinstance(body, Mapping) and body.get("memories") is not None:
            return await self._keep_several(principal, asked)
        draft = read_draft(_object(body))
        principal.need_channel(NOTE_CHANNEL)
        kept = await self._memory.memories.keep(
            principal.tenant, keeping(principal, self._shared), draft, key=asked.key
        )
        if kept.memory is None:
            raise AssertionError("a duplicate is refused")
        return kept.memory.to_json(principal.tenant)

    async def _keep_several(self, principal: Principal, asked: Asked) -> Json:
        request = inputs.read(rest.MemoriesInput, asked.body)
        if len(request.memories) > self._most_at_once:
            raise BatchTooLarge(
                f"{len(request.memories)} memories; at most {self._most_at_once} are taken at once",
                limit=self._most_at_once,
            )
        principal.need_channel(NOTE_CHANNEL)
        drafts = await in_steps(_drafts(request.memories, all_or_none=request.atomic is not False))
        good = [draft for draft in drafts if isinstance(draft, MemoryDraft)]
        kept: Sequence[Kept] = ()
        if good:
            kept = await self._memory.memories.keep_all(
                principal.tenant, keeping(principal, self._shared), good, whole=request.atomic is True, key=asked.key
            )
        outcomes = iter(kept)
        memories, results = [], []
        for index, draft in enumerate(drafts):
            if isinstance(draft, MyriaError):
                results.append({"index": index, "status": "refused", "error": draft.message})
                continue
            memory = next(outcomes).memory
            if memory is None:
                results.append({"index": index, "status": "duplicate"})
                continue
            results.append({"index": index, "status": "stored", "id": memory.memory_id})
            memories.append(memory.to_json(principal.tenant))
        return {"memories": memories, "count": len(memories), "results": results}

    async def list_memories(self, principal: Principal, asked: Asked) -> Json:
        """List memories."""
        return await self._listed(principal, inputs.read(rest.ListInput, asked.query))

    async def list_agent_memories(self, principal: Principal, asked: Asked) -> Json:
        """List what an agent kept."""
        request = inputs.read(rest.AgentListInput, {**asked.query, "agent_id": None})
        return await self._listed(principal, request, agents=await self._names(principal, asked.entry_id))

    async def list_session_memories(self, principal: Principal, asked: Asked) -> Json:
        """List what was kept in a session."""
        request = inputs.read(rest.ListInput, {**asked.query, "session_id": None})
        return await self._listed(principal, request, session_id=asked.entry_id)

    async def _listed(
        self,
        principal: Principal,
        request: rest.ListInput,
        *,
        agents: Sequence[str] = (),
        session_id: str | None = None,
    ) -> Json:
        now = rest.now_us()
        filters = MemoryFilters(
            agent_id=agents[0] if agents else request.agent_id,
            session_id=session_id or request.session_id,
            memory_types=request.memory_type,
            event_types=request.event_type,
            tags=request.tags or None,
            since=_moment(request.since, "since", now),
            until=_moment(request.until, "until", now),
        )
        page = await self._memory.memory_reader.page(
            principal.tenant,
            self._masks(principal),
            filters,
            agents=agents[1:],
            order=request.order,
            limit=request.limit,
            offset=request.offset or 0,
            cursor=request.cursor,
        )
        memories = [memory.to_json(principal.tenant) for memory in page.memories]
        is_all = not request.offset and request.cursor is None
        return {
            "memories": memories,
            "count": len(memories),
            "has_more": page.has_more,
            **_further(page),
            **_noted(nothing=is_all and not memories),
        }

    async def get_memory(self, principal: Principal, asked: Asked) -> Json:
        """Read one memory."""
        if asked.entry_id.startswith(EVENT_ID_PREFIX):
            event = await self._memory.memory_search.event(principal.tenant, self._masks(principal), asked.entry_id)
            return event.to_json(principal.tenant)
        reader = self._memory.memory_reader
        masks = self._masks(principal)
        memory = await reader.get(principal.tenant, masks, asked.entry_id)
        links = await self._memory.links.lasting(principal.tenant, memory.memory_id, may_see=masks.sees)
        answer = memory.to_json(principal.tenant)
        if links:
            answer["links"] = [
                {"from": link.from_id, "to": link.to_id, "relation_type": link.relation} for link in links
            ]
        return answer

    async def amend_memory(self, principal: Principal, asked: Asked) -> Json:
        """Change a memory."""
        request = inputs.read(rest.MemoryChangeInput, _object(asked.body))
        principal.need_channel(NOTE_CHANNEL)
        changes = MemoryChanges(
            content=request.content,
            event_type=request.event_type,
            metadata=request.metadata,
            tags=request.tags,
            importance=request.importance,
        )
        memory = await self._memory.memories.amend(
            principal.tenant,
            asked.entry_id,
            changes,
            may_see=self._masks(principal).sees,
            version=request.version,
            key=self._own_key(principal, asked.key),
        )
        return memory.to_json(principal.tenant)

    async def withdraw_memory(self, principal: Principal, asked: Asked) -> Json:
        """Take a memory out of every answer."""
        if asked.entry_id.startswith(EVENT_ID_PREFIX):
            try:
                await self._memory.withdraw_events(
                    principal.tenant,
                    [asked.entry_id],
                    "forgotten",
                    may_see=self._masks(principal).sees,
                    may_append=principal.need_channel,
                )
            except EventNotFound as error:
                raise NoteNotFound("memory not found") from error
            return {}
        principal.need_channel(NOTE_CHANNEL)
        may_see, key = self._masks(principal).sees, self._own_key(principal, asked.key)
        await self._memory.memories.withdraw(principal.tenant, asked.entry_id, may_see=may_see, key=key)
        return {}

    async def search_memories(self, principal: Principal, asked: Asked) -> Json:
        """Search memories."""
        began = time.perf_counter()
        request = inputs.read(rest.SearchInput, _object(asked.body))
        now = rest.now_us()
        filters = MemoryFilters(
            agent_id=request.agent_id,
            session_id=request.session_id,
            memory_types=request.memory_types,
            event_types=request.event_types,
            tags=request.tags or None,
            contains=request.content_contains,
            since=_moment(request.since, "since", now),
            until=_moment(request.until, "until", now),
            min_importance=request.min_importance or None,
        )
        if request.query is not None:
            page = await self._best(principal, request, filters)
        else:
            page = await self._by_time(principal, request, filters)
        results = [memory.to_json(principal.tenant) for memory in page.memories]
        answer: Json = {
            "results": results,
            "count": len(results),
            "query_time_ms": round((time.perf_counter() - began) * 1000),
            "has_more": page.has_more,
            **_further(page),
        }
        if page.scanned is not None:
            answer["scanned"] = page.scanned
        is_all = not request.offset and request.cursor is None and page.scanned is None
        return {**answer, **_noted(nothing=is_all and not results)}

    async def _by_time(self, principal: Principal, request: rest.SearchInput, filters: MemoryFilters) -> MemoryPage:
        """Return what matches by time: what holds a text by its words, and only where these find none by looking."""
        masks, offset = self._masks(principal), request.offset or 0
        found = None
        if filters.contains is not None:
            found = await self._memory.memory_search.holding(
                principal.tenant,
                masks,
                filters,
                order=request.order,
                limit=request.limit,
                offset=offset,
                cursor=request.cursor,
            )
        return found or await self._memory.memory_reader.page(
            principal.tenant,
            masks,
            filters,
            order=request.order,
            limit=request.limit,
            offset=offset,
            cursor=request.cursor,
        )

    async def _best(self, principal: Principal, request: rest.SearchInput, filters: MemoryFilters) -> MemoryPage:
        """Return what is most about a question.

        Raises:
            InvalidArgument: it has a cursor, which an answer of the best never gives.
        """
        if request.cursor is not None:
            raise InvalidArgument("with query the best come on one page: ask with limit and offset", field="cursor")
        return await self._memory.memory_search.best(
            principal.tenant,
            self._masks(principal),
            request.query or "",
            filters,
            limit=request.limit,
            offset=request.offset or 0,
        )

    async def register_agent(self, principal: Principal, asked: Asked) -> Json:
        """Register an agent."""
        request = inputs.read(rest.NewAgentInput, _object(asked.body))
        principal.need_channel(REGISTRY_CHANNEL)
        entry = await self._memory.registrations.register_agent(
            principal.tenant,
            self._shared,
            name=request.name,
            description=request.description,
            config=request.config,
            key=self._own_key(principal, asked.key),
        )
        return entry.agent_json(principal.tenant, last_active_at=None)

    async def list_agents(self, principal: Principal, asked: Asked) -> Json:
        """List agents."""
        request = inputs.read(rest.RegistryInput, asked.query)
        masks = self._masks(principal)
        entries, has_more = await self._memory.registrations.agents(
            principal.tenant, self._shared, limit=request.limit, offset=request.offset or 0
        )
        names = [name for entry in entries for name in (entry.entry_id, entry.name or "")]
        active = await self._memory.memory_reader.last_active(principal.tenant, masks, names) if names else {}
        agents = [
            entry.agent_json(principal.tenant, last_active_at=_latest(active, entry.entry_id, entry.name or ""))
            for entry in entries
        ]
        return {"agents": agents, "count": len(agents), "has_more": has_more}

    async def get_agent(self, principal: Principal, asked: Asked) -> Json:
        """Read an agent."""
        masks = self._masks(principal)
        entry = await self._memory.registrations.get_agent(principal.tenant, self._shared, asked.entry_id)
        names = (entry.entry_id, entry.name or "")
        active = await self._memory.memory_reader.last_active(principal.tenant, masks, names)
        return entry.agent_json(principal.tenant, last_active_at=_latest(active, *names))

    async def delete_agent(self, principal: Principal, asked: Asked) -> Json:
        """Take an agent out of the registry."""
        key = self._own_key(principal, asked.key)
        principal.need_channel(REGISTRY_CHANNEL)
        await self._memory.registrations.delete_agent(principal.tenant, self._shared, asked.entry_id, key=key)
        return {}

    async def get_agent_statistics(self, principal: Principal, asked: Asked) -> Json:
        """Count what an agent kept."""
        masks = self._masks(principal)
        names = await self._names(principal, asked.entry_id)
        found = await self._memory.memory_reader.statistics(principal.tenant, masks, names)
        sessions, active = await self._memory.registrations.sessions_of(principal.tenant, self._shared, names)
        answer: Json = {
            "agent_id": asked.entry_id,
            "memory_count": found.memories,
            "memories_24h": found.memories_24h,
            "errors_24h": found.errors_24h,
            "session_count": sessions,
            "active_sessions": active,
            "memory_types": found.by_type,
        }
        if found.last_active_at is not None:
            answer["last_active_at"] = to_rfc3339(found.last_active_at)
        return answer

    async def open_session(self, principal: Principal, asked: Asked) -> Json:
        """Open a session."""
        request = inputs.read(rest.NewSessionInput, _object(asked.body))
        principal.need_channel(REGISTRY_CHANNEL)
        entry = await self._memory.registrations.open_session(
            principal.tenant,
            self._shared,
            agent=request.agent_id,
            metadata=request.metadata,
            key=self._own_key(principal, asked.key),
        )
        return entry.session_json(principal.tenant)

    async def list_sessions(self, principal: Principal, asked: Asked) -> Json:
        """List sessions."""
        request = inputs.read(rest.SessionsInput, asked.query)
        own_of(principal, self._shared)
        names = None if request.agent_id is None else await self._names(principal, request.agent_id)
        entries, has_more = await self._memory.registrations.sessions(
            principal.tenant, self._shared, agents=names, limit=request.limit, offset=request.offset or 0
        )
        sessions = [entry.session_json(principal.tenant) for entry in entries]
        return {"sessions": sessions, "count": len(sessions), "has_more": has_more}

    async def get_session(self, principal: Principal, asked: Asked) -> Json:
        """Read a session."""
        own_of(principal, self._shared)
        entry = await self._memory.registrations.get_session(principal.tenant, self._shared, asked.entry_id)
        return entry.session_json(principal.tenant)

    async def change_session(self, principal: Principal, asked: Asked) -> Json:
        """Close a session, or change it."""
        request = inputs.read(rest.SessionChangeInput, _object(asked.body))
        own_of(principal, self._shared)
        principal.need_channel(REGISTRY_CHANNEL)
        entry = await self._memory.registrations.change_session(
            principal.tenant, self._shared, asked.entry_id, status=request.status, metadata=request.metadata
        )
        return entry.session_json(principal.tenant)

    async def get_session_context(self, principal: Principal, asked: Asked) -> Json:
        """Write the context of a session."""
        request = inputs.read(rest.SessionContextInput, {} if asked.body is None else _object(asked.body))
        filters = MemoryFilters(
            session_id=asked.entry_id,
            memory_types=request.include_types,
            since=_moment(request.since, "since", rest.now_us()),
        )
        masks, search = self._masks(principal), self._memory.memory_search
        if request.query is None:
            page = await self._memory.memory_reader.page(principal.tenant, masks, filters, limit=MOST_SHOWN)
        else:
            page = await search.best(principal.tenant, masks, request.query, filters, limit=MOST_SHOWN)
        topics: Sequence[str] = ()
        if page.has_more and filters.memory_types is None:
            shown = [memory.memory_id for memory in page.memories]
            topics = await search.topics(principal.tenant, masks, filters, without=shown, query=request.query)
        counter = None if request.max_tokens is None else await asyncio.to_thread(token_counter)
        context = session_context(
            asked.entry_id,
            page.memories,
            topics=topics,
            max_tokens=request.max_tokens,
            count=None if counter is None else counter.count,
            sought=sought_in(request.query),
        )
        return {
            "session_id": asked.entry_id,
            "context": context.text,
            "memory_count": context.memories,
            **_noted(nothing=not page.memories and not topics),
        }

    def _masks(self, principal: Principal) -> Masks:
        return masks_of(principal, self._shared)

    def _own_key(self, principal: Principal, key: str | None) -> str | None:
        """Return a caller's key as one of its own: that of another principal is another."""
        own = own_of(principal, self._shared)
        return None if key is None else digest([*own, key]).hex()

    async def _names(self, principal: Principal, named: str) -> list[str]:
        """Return under which names an agent keeps memories that is named by its id, its name, or as nobody is."""
        own_of(principal, self._shared)
        entry = await self._memory.registrations.find_agent(principal.tenant, self._shared, named)
        if entry is None:
            return [named]
        return list(dict.fromkeys([named, entry.entry_id, entry.name or named]))


def handlers(face: RestFace) -> Mapping[str, ToolHandler]:
    """Return what runs each tool of the face, by its name."""

    async def memtrace_remember(principal: Principal, arguments: Any) -> Json:
        return await face.keep_memories(principal, Asked(body=_object(arguments)))

    async def memtrace_recall(principal: Principal, arguments: Any) -> Json:
        request = inputs.read(rest.RecallToolInput, arguments)
        return await face.list_memories(principal, Asked(query=request.model_dump(exclude_none=True)))

    async def memtrace_search(principal: Principal, arguments: Any) -> Json:
        request = inputs.read(rest.SearchToolInput, arguments)
        return await face.search_memories(principal, Asked(body=request.model_dump(exclude_none=True)))

    async def memtrace_decide(principal: Principal, arguments: Any) -> Json:
        request = inputs.read(rest.DecideInput, arguments)
        body = {
            "agent_id": request.agent_id,
            "content": request.decision,
            "memory_type": "decision",
            "event_type": "decision",
            "metadata": {"reasoning": request.reasoning},
        }
        return await face.keep_memories(principal, Asked(body=body))

    async def memtrace_session_create(principal: Principal, arguments: Any) -> Json:
        return await face.open_session(principal, Asked(body=_object(arguments)))

    async def memtrace_session_context(principal: Principal, arguments: Any) -> ShownAnswer:
        request = inputs.read(rest.ContextToolInput, arguments)
        body = request.model_dump(exclude_none=True, exclude={"session_id"})
        content = await face.get_session_context(principal, Asked(entry_id=request.session_id, body=body))
        return ShownAnswer(content=content, text=content["context"] + content.get("note", ""))

    async def memtrace_agent_register(principal: Principal, arguments: Any) -> Json:
        request = inputs.read(rest.RegisterToolInput, arguments)
        return await face.register_agent(principal, Asked(body=request.model_dump(exclude_none=True)))

    as_json = (
        memtrace_remember,
        memtrace_recall,
        memtrace_search,
        memtrace_decide,
        memtrace_session_create,
        memtrace_agent_register,
    )
    return {
        **{handler.__name__: _indented(handler) for handler in as_json},
        memtrace_session_context.__name__: memtrace_session_context,
    }


def _indented(handler: Callable[[Principal, Any], Awaitable[Json]]) -> ToolHandler:
    """Return a handler whose answer is shown as indented JSON, as the contract has it."""

    async def run(principal: Principal, arguments: Any) -> ShownAnswer:
        content = await handler(principal, arguments)
        return ShownAnswer(content=content, text=orjson.dumps(content, option=orjson.OPT_INDENT_2).decode())

    return run


def _drafts(items: Sequence[Any], *, all_or_none: bool) -> Generator[None, None, list[MemoryDraft | MyriaError]]:
    """Read memories, a few at each step; return them, or what is wrong with them.

    Raises:
        what is wrong with the first, where `all_or_none`; the detail `index` names it.
    """
    drafts: list[MemoryDraft | MyriaError] = []
    for index, item in enumerate(items):
        try:
            drafts.append(read_draft(_object(item)))
        except MyriaError as error:
            refusal = type(error)(f"memories[{index}]: {error.message}", **{**error.details, "index": index})
            if all_or_none:
                raise refusal from error
            drafts.append(refusal)
        yield
    return drafts


def _object(body: Any) -> Json:
    if body is None:
        return {}
    if not isinstance(body, dict):
        raise InvalidArgument("invalid request body: it must be a JSON object", field="")
    return body


def _moment(value: str | None, name: str, now: int) -> int | None:
    """Return the moment of a filter, None where it leaves nothing out: nothing is kept later than now."""
    if value is None:
        return None
    at = rest.moment(value, field=name, now=now)
    return now if at is None and name == "since" else at


def _noted(*, nothing: bool) -> Json:
    """Return what an answer says where nothing fits, as on every face: an empty list may be one that was cut."""
    return {"note": NOTHING} if nothing else {}


def _further(page: MemoryPage) -> Json:
    return {} if page.cursor is None else {"next_cursor": page.cursor}


def _latest(active: Mapping[str, int], *names: str) -> int | None:
    return max((active[name] for name in names if name in active), default=None)
