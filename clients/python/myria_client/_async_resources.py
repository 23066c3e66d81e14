"""What clients whose calls are awaited offer for each kind of thing; `_resources` says what each does."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar, Unpack

from myria_client import _flows as flows
from myria_client import _routes as routes
from myria_client._calls import Call
from myria_client._flows import Flow
from myria_client._importing import BATCH, Stream
from myria_client._routes import ListFilters, OwnFilters, SearchFilters
from myria_client.records import (
    Agent,
    AgentSession,
    AgentStatistics,
    KeptMemories,
    Memory,
    MemoryPage,
    Moment,
    NewMemory,
    Outcome,
    SessionContext,
)

T = TypeVar("T")


class AsyncSender(Protocol):
    """Sends calls, again where that helps."""

    async def send(self, call: Call[T]) -> T:
        """Return what was answered."""
        ...

    async def run(self, flow: Flow[T]) -> T:
        """Run what takes several calls, and return its result."""
        ...


class AsyncMemories:
    """Memories of an organisation, at `/api/v1/memories` and `/api/v1/search`."""

    def __init__(self, sender: AsyncSender) -> None:
        self._send = sender.send
        self._run = sender.run

    async def keep(self, memory: NewMemory, *, idempotency_key: str | None = None) -> Memory:
        """Keep a memory; see `Memories.keep`."""
        return await self._send(routes.keep(memory, idempotency_key))

    async def keep_many(
        self, memories: Sequence[NewMemory], *, atomic: bool | None = None, idempotency_key: str | None = None
    ) -> KeptMemories:
        """Keep several memories by one call; the server takes some hundred at once; see `Memories.keep_many`."""
        bodies = [memory.to_json() for memory in memories]
        return await self._send(routes.keep_many(bodies, atomic=atomic, key=idempotency_key))

    async def get(self, memory_id: str) -> Memory:
        """Return a memory; see `Memories.get`."""
        return await self._send(routes.get_memory(memory_id))

    async def amend(
        self,
        memory_id: str,
        *,
        content: str | None = None,
        event_type: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        tags: Sequence[str] | None = None,
        importance: float | None = None,
        version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Memory:
        """Change a memory; see `Memories.amend`."""
        changes = routes.changes_of(
            content=content,
            event_type=event_type,
            metadata=metadata,
            tags=tags,
            importance=importance,
            version=version,
        )
        return await self._send(routes.amend_memory(memory_id, changes, key=idempotency_key))

    async def withdraw(self, memory_id: str, *, idempotency_key: str | None = None) -> None:
        """Take a memory out of every answer; see `Memories.withdraw`."""
        await self._send(routes.withdraw_memory(memory_id, key=idempotency_key))

    async def page(
        self, *, limit: int | None = None, cursor: str | None = None, **filters: Unpack[ListFilters]
    ) -> MemoryPage:
        """Return some memories, newest first; see `Memories.page`."""
        return await self._send(routes.list_memories(filters, limit=limit, cursor=cursor))

    def each(self, *, page_size: int = routes.MOST_LISTED, **filters: Unpack[ListFilters]) -> AsyncIterator[Memory]:
        """Yield all memories that match, newest first, a page at a time; see `Memories.each`."""
        return _followed(lambda cursor: self._send(routes.list_memories(filters, limit=page_size, cursor=cursor)))

    async def search(
        self, *, limit: int | None = None, cursor: str | None = None, **filters: Unpack[SearchFilters]
    ) -> MemoryPage:
        """Return some memories that match, newest first; see `Memories.search`."""
        return await self._send(routes.search_memories(filters, limit=limit, cursor=cursor))

    def search_each(
        self, *, page_size: int = routes.MOST_LISTED, **filters: Unpack[SearchFilters]
    ) -> AsyncIterator[Memory]:
        """Yield all memories that match, newest first, a page at a time; see `Memories.search_each`."""
        return _followed(lambda cursor: self._send(routes.search_memories(filters, limit=page_size, cursor=cursor)))

    async def keep_each(
        self,
        memories: Iterable[NewMemory] | AsyncIterable[NewMemory],
        *,
        name: str,
        checkpoint: Path | str | None = None,
        batch: int = BATCH,
    ) -> AsyncIterator[Outcome]:
        """Keep a stream of any length, and yield what became of each memory; see `Memories.keep_each`."""
        stream = Stream(name, checkpoint, batch)
        async for memory in _each(memories):
            if stream.add(memory):
                for outcome in await self._run(flows.import_batch(stream.bodies, stream.key, stream.start)):
                    yield outcome
                stream.sent()
        if stream.bodies:
            for outcome in await self._run(flows.import_batch(stream.bodies, stream.key, stream.start)):
                yield outcome
            stream.sent()


async def _each(memories: Iterable[NewMemory] | AsyncIterable[NewMemory]) -> AsyncIterator[NewMemory]:
    if isinstance(memories, AsyncIterable):
        async for memory in memories:
            yield memory
    else:
        for memory in memories:
            yield memory


class AsyncAgents:
    """The registry of agents, at `/api/v1/agents`; an agent may be named by its id or its name."""

    def __init__(self, sender: AsyncSender) -> None:
        self._send = sender.send

    async def register(
        self,
        name: str,
        *,
        description: str | None = None,
        config: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Agent:
        """Register an agent; see `Agents.register`."""
        return await self._send(
            routes.register_agent(name, description=description, config=config, key=idempotency_key)
        )

    async def get(self, agent: str) -> Agent:
        """Return an agent; see `Agents.get`."""
        return await self._send(routes.get_agent(agent))

    def each(self) -> AsyncIterator[Agent]:
        """Yield all agents, newest first; see `Agents.each`."""
        return _counted(lambda limit, offset: self._send(routes.list_agents(limit=limit, offset=offset)))

    async def delete(self, agent_id: str, *, idempotency_key: str | None = None) -> None:
        """Take an agent out of the registry; what it kept stays; see `Agents.delete`."""
        await self._send(routes.delete_agent(agent_id, key=idempotency_key))

    async def statistics(self, agent: str) -> AgentStatistics:
        """Return what an agent kept, counted; see `Agents.statistics`."""
        return await self._send(routes.agent_statistics(agent))

    def memories(
        self, agent: str, *, page_size: int = routes.MOST_LISTED, **filters: Unpack[OwnFilters]
    ) -> AsyncIterator[Memory]:
        """Yield what an agent kept, under its id and its name; see `Agents.memories`."""
        return _followed(
            lambda cursor: self._send(routes.list_memories_of("agents", agent, filters, limit=page_size, cursor=cursor))
        )


class AsyncSessions:
    """Sessions of registered agents, at `/api/v1/sessions`."""

    def __init__(self, sender: AsyncSender) -> None:
        self._send = sender.send

    async def open(
        self, agent: str, *, metadata: Mapping[str, Any] | None = None, idempotency_key: str | None = None
    ) -> AgentSession:
        """Open a session of a registered agent; see `Sessions.open`."""
        return await self._send(routes.open_session(agent, metadata=metadata, key=idempotency_key))

    async def get(self, session_id: str) -> AgentSession:
        """Return a session; see `Sessions.get`."""
        return await self._send(routes.get_session(session_id))

    def each(self, agent: str | None = None) -> AsyncIterator[AgentSession]:
        """Yield all sessions, or those of an agent, newest first; see `Sessions.each`."""
        return _counted(lambda limit, offset: self._send(routes.list_sessions(agent, limit=limit, offset=offset)))

    async def change(
        self, session_id: str, *, status: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> AgentSession:
        """Change a session; `metadata` takes the place of all that was there; see `Sessions.change`."""
        return await self._send(routes.change_session(session_id, status=status, metadata=metadata))

    async def close(self, session_id: str) -> AgentSession:
        """End a session; see `Sessions.close`."""
        return await self.change(session_id, status="closed")

    def memories(
        self, session_id: str, *, page_size: int = routes.MOST_LISTED, **filters: Unpack[OwnFilters]
    ) -> AsyncIterator[Memory]:
        """Yield what was kept in a session, newest first; see `Sessions.memories`."""
        return _followed(
            lambda cursor: self._send(
                routes.list_memories_of("sessions", session_id, filters, limit=page_size, cursor=cursor)
            )
        )

    async def context(
        self,
        session_id: str,
        *,
        query: str | None = None,
        max_tokens: int | None = None,
        include_types: Sequence[str] = (),
        since: Moment | None = None,
    ) -> SessionContext:
        """Return what was kept in a session as markdown for a prompt; see `Sessions.context`."""
        return await self._send(
            routes.session_context(
                session_id, query=query, max_tokens=max_tokens, include_types=include_types, since=since
            )
        )


async def _followed(page_of: Callable[[str | None], Awaitable[MemoryPage]]) -> AsyncIterator[Memory]:
    """Yield the memories of all pages, each page when it is needed."""
    cursor: str | None = None
    while True:
        page = await page_of(cursor)
        for memory in page.memories:
            yield memory
        cursor = page.next_cursor
        if cursor is None:
            return


async def _counted(page_of: Callable[[int, int], Awaitable[tuple[T, ...]]]) -> AsyncIterator[T]:
    """Yield the entries of all pages that are told apart by their offset."""
    offset = 0
    while True:
        page = await page_of(routes.MOST_LISTED, offset)
        for entry in page:
            yield entry
        offset += len(page)
        if not page:  # a page that is large in bytes is shorter than was asked for
            return
