"""What clients that wait offer for each kind of thing; `_async_resources` has the same, awaited."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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


class Sender(Protocol):
    """Sends calls, again where that helps."""

    def send(self, call: Call[T]) -> T:
        """Return what was answered."""
        ...

    def run(self, flow: Flow[T]) -> T:
        """Run what takes several calls, and return its result."""
        ...


class Memories:
    """Memories of an organisation, at `/api/v1/memories` and `/api/v1/search`."""

    def __init__(self, sender: Sender) -> None:
        self._send = sender.send
        self._run = sender.run

    def keep(self, memory: NewMemory, *, idempotency_key: str | None = None) -> Memory:
        """Keep a memory.

        Args:
            idempotency_key: your own name for this call: a repeat with it, also by another program, answers the
                first. Left out, one is made for this call and its retries.

        Raises:
            Duplicate: the same was kept a while ago.
            Refused, Unreachable.
        """
        return self._send(routes.keep(memory, idempotency_key))

    def keep_many(
        self, memories: Sequence[NewMemory], *, atomic: bool | None = None, idempotency_key: str | None = None
    ) -> KeptMemories:
        """Keep several memories by one call; the server takes some hundred at once.

        Args:
            atomic: True: a duplicate refuses all. False: each by itself. Left out: duplicates are left out, and
                anything else that is wrong refuses all.
            idempotency_key: as in `keep`.

        Raises:
            Duplicate, Refused, Unreachable.
        """
        bodies = [memory.to_json() for memory in memories]
        return self._send(routes.keep_many(bodies, atomic=atomic, key=idempotency_key))

    def get(self, memory_id: str) -> Memory:
        """Return a memory.

        Raises:
            NotFound: it is not there, or not for this key.
        """
        return self._send(routes.get_memory(memory_id))

    def amend(
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
        """Change a memory: its id and its time stay. What is left out stays, an empty object or list takes it away.

        Args:
            version: the version that you saw: where there is a newer one, nothing is changed.
            idempotency_key: your own name for this call: a repeat with it, also by another program, answers the first.

        Raises:
            NotFound: it is not there, or not for this key.
            Conflict: there is a newer version.
        """
        changes = routes.changes_of(
            content=content,
            event_type=event_type,
            metadata=metadata,
            tags=tags,
            importance=importance,
            version=version,
        )
        return self._send(routes.amend_memory(memory_id, changes, key=idempotency_key))

    def withdraw(self, memory_id: str, *, idempotency_key: str | None = None) -> None:
        """Take a memory out of every answer.

        Raises:
            NotFound: it is not there, or not for this key.
        """
        self._send(routes.withdraw_memory(memory_id, key=idempotency_key))

    def page(
        self, *, limit: int | None = None, cursor: str | None = None, **filters: Unpack[ListFilters]
    ) -> MemoryPage:
        """Return some memories, newest first.

        Args:
            limit: at most 1,000; left out, 100.
            cursor: `next_cursor` of the page before.
        """
        return self._send(routes.list_memories(filters, limit=limit, cursor=cursor))

    def each(self, *, page_size: int = routes.MOST_LISTED, **filters: Unpack[ListFilters]) -> Iterator[Memory]:
        """Yield all memories that match, newest first, a page at a time."""
        return _followed(lambda cursor: self._send(routes.list_memories(filters, limit=page_size, cursor=cursor)))

    def search(
        self, *, limit: int | None = None, cursor: str | None = None, **filters: Unpack[SearchFilters]
    ) -> MemoryPage:
        """Return some memories that match, newest first.

        Args:
            limit: at most 1,000; left out, 50.
            cursor: `next_cursor` of the page before.
        """
        return self._send(routes.search_memories(filters, limit=limit, cursor=cursor))

    def search_each(self, *, page_size: int = routes.MOST_LISTED, **filters: Unpack[SearchFilters]) -> Iterator[Memory]:
        """Yield all memories that match, newest first, a page at a time."""
        return _followed(lambda cursor: self._send(routes.search_memories(filters, limit=page_size, cursor=cursor)))

    def keep_each(
        self,
        memories: Iterable[NewMemory],
        *,
        name: str,
        checkpoint: Path | str | None = None,
        batch: int = BATCH,
    ) -> Iterator[Outcome]:
        """Keep a stream of any length, and yield what became of each memory, by its place in the stream.

        One batch is held at a time. Each memory is kept by itself: duplicates and what is refused stop nothing.

        Args:
            name: of this import. The same name and stream again keep nothing twice, and answer the same.
            checkpoint: a file in which it is written how far it came; a run that finds it goes on from there. It is
                written when the outcomes of a batch were taken.
            batch: memories that go out together; the server takes some hundred at once.

        Raises:
            ValueError: the checkpoint is of another import.
            OSError: it cannot be read or written.
            Refused, Unreachable: run it again; it goes on.
        """
        stream = Stream(name, checkpoint, batch)
        for memory in memories:
            if stream.add(memory):
                yield from self._run(flows.import_batch(stream.bodies, stream.key, stream.start))
                stream.sent()
        if stream.bodies:
            yield from self._run(flows.import_batch(stream.bodies, stream.key, stream.start))
            stream.sent()


class Agents:
    """The registry of agents, at `/api/v1/agents`; an agent may be named by its id or its name."""

    def __init__(self, sender: Sender) -> None:
        self._send = sender.send

    def register(
        self,
        name: str,
        *,
        description: str | None = None,
        config: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Agent:
        """Register an agent.

        Raises:
            Conflict: there is one of this name.
        """
        return self._send(routes.register_agent(name, description=description, config=config, key=idempotency_key))

    def get(self, agent: str) -> Agent:
        """Return an agent.

        Raises:
            NotFound: it is not registered.
        """
        return self._send(routes.get_agent(agent))

    def each(self) -> Iterator[Agent]:
        """Yield all agents, newest first."""
        return _counted(lambda limit, offset: self._send(routes.list_agents(limit=limit, offset=offset)))

    def delete(self, agent_id: str, *, idempotency_key: str | None = None) -> None:
        """Take an agent out of the registry; what it kept stays.

        Raises:
            NotFound: it is not registered.
        """
        self._send(routes.delete_agent(agent_id, key=idempotency_key))

    def statistics(self, agent: str) -> AgentStatistics:
        """Return what an agent kept, counted."""
        return self._send(routes.agent_statistics(agent))

    def memories(
        self, agent: str, *, page_size: int = routes.MOST_LISTED, **filters: Unpack[OwnFilters]
    ) -> Iterator[Memory]:
        """Yield what an agent kept, under its id and its name; of the last 24 hours unless `since` says more."""
        return _followed(
            lambda cursor: self._send(routes.list_memories_of("agents", agent, filters, limit=page_size, cursor=cursor))
        )


class Sessions:
    """Sessions of registered agents, at `/api/v1/sessions`."""

    def __init__(self, sender: Sender) -> None:
        self._send = sender.send

    def open(
        self, agent: str, *, metadata: Mapping[str, Any] | None = None, idempotency_key: str | None = None
    ) -> AgentSession:
        """Open a session of a registered agent.

        Raises:
            Invalid: the agent is not registered.
        """
        return self._send(routes.open_session(agent, metadata=metadata, key=idempotency_key))

    def get(self, session_id: str) -> AgentSession:
        """Return a session.

        Raises:
            NotFound: there is none of this id.
        """
        return self._send(routes.get_session(session_id))

    def each(self, agent: str | None = None) -> Iterator[AgentSession]:
        """Yield all sessions, or those of an agent, newest first."""
        return _counted(lambda limit, offset: self._send(routes.list_sessions(agent, limit=limit, offset=offset)))

    def change(
        self, session_id: str, *, status: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> AgentSession:
        """Change a session; `metadata` takes the place of all that was there.

        Raises:
            NotFound: there is none of this id.
        """
        return self._send(routes.change_session(session_id, status=status, metadata=metadata))

    def close(self, session_id: str) -> AgentSession:
        """End a session.

        Raises:
            NotFound: there is none of this id.
        """
        return self.change(session_id, status="closed")

    def memories(
        self, session_id: str, *, page_size: int = routes.MOST_LISTED, **filters: Unpack[OwnFilters]
    ) -> Iterator[Memory]:
        """Yield what was kept in a session, newest first."""
        return _followed(
            lambda cursor: self._send(
                routes.list_memories_of("sessions", session_id, filters, limit=page_size, cursor=cursor)
            )
        )

    def context(
        self,
        session_id: str,
        *,
        query: str | None = None,
        max_tokens: int | None = None,
        include_types: Sequence[str] = (),
        since: Moment | None = None,
    ) -> SessionContext:
        """Return what was kept in a session as markdown for a prompt.

        Args:
            query: where not all fits, what has its words is shown.
            max_tokens: a bound of the text.
            include_types: of these types alone.
            since: left out, of the last 24 hours.
        """
        return self._send(
            routes.session_context(
                session_id, query=query, max_tokens=max_tokens, include_types=include_types, since=since
            )
        )


def _followed(page_of: Callable[[str | None], MemoryPage]) -> Iterator[Memory]:
    """Yield the memories of all pages, each page when it is needed."""
    cursor: str | None = None
    while True:
        page = page_of(cursor)
        yield from page.memories
        cursor = page.next_cursor
        if cursor is None:
            return


def _counted(page_of: Callable[[int, int], tuple[T, ...]]) -> Iterator[T]:
    """Yield the entries of all pages that are told apart by their offset."""
    offset = 0
    while True:
        page = page_of(routes.MOST_LISTED, offset)
        yield from page
        offset += len(page)
        if not page:  # a page that is large in bytes is shorter than was asked for
            return
