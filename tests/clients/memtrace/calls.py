"""Every call of memtrace-sdk, sync or async, with a key; prints what was answered as JSON."""

# mypy: ignore-errors
# Checked against nothing: memtrace-sdk is in an environment of its own.

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from typing import Any

from memtrace import (
    AddMemoryRequest,
    AsyncMemtrace,
    ContextOptions,
    CreateSessionRequest,
    ListOptions,
    Memtrace,
    RegisterAgentRequest,
    SearchQuery,
)
from memtrace.exceptions import MemtraceError


async def calls(client: Any, stranger: Any) -> dict[str, Any]:
    """Make each call, and each error that has a type of its own."""

    async def done(answer: Any) -> Any:
        return await answer if inspect.isawaitable(answer) else answer

    async def refused(call: Any, *arguments: Any) -> list[Any]:
        try:
            await done(call(*arguments))
        except MemtraceError as error:
            return [type(error).__name__, error.status_code, error.message]
        return []

    agent = await done(client.register_agent(RegisterAgentRequest(name="bot", description="d", config={"a": 1})))
    session = await done(client.create_session(CreateSessionRequest(agent_id=agent.id, metadata={"m": 1})))
    first = await done(client.remember(agent.id, "Crawled https://example.com"))
    decided = await done(client.decide(agent.id, "Skip pagination", "Only two pages deep"))
    whole = AddMemoryRequest(
        agent_id=agent.id,
        session_id=session.id,
        memory_type="entity",
        event_type="person",
        content="Ada builds it",
        metadata={"deep": {"er": [1, 2.5, None]}},
        tags=["team", "v1.2"],
        dedup_key="mine",
        importance=0.75,
        parent_id="note_1",
    )
    added = await done(client.add_memory(whole))
    plain = {"agent_id": agent.id, "memory_type": "episodic", "event_type": "general"}
    several = [AddMemoryRequest(**plain, content=text) for text in ("one", "two", "Crawled https://example.com")]
    batch = await done(client.add_memories(several))
    return {
        "agent": agent.name,
        "types": [type(one).__name__ for one in (agent, session, first)],
        "decided": [decided.memory_type, decided.metadata],
        "added": added.model_dump(exclude={"time", "org_id", "agent_id", "session_id"}),
        "batch": [memory.content for memory in batch],
        "recall": (await done(client.recall(agent.id))).count,
        "listed": [
            memory.content
            for memory in (
                await done(client.list_memories(ListOptions(order="asc", limit=2, offset=1, since="1h")))
            ).memories
        ],
        "more": (await done(client.list_memories(ListOptions(limit=2)))).has_more,
        "found": (await done(client.search_memories(SearchQuery(content_contains="builds", tags=["team"])))).count,
        "agents": (await done(client.list_agents())).count,
        "got": [(await done(client.get_agent(name))).id == agent.id for name in ("bot", agent.id)],
        "stats": (await done(client.get_agent_stats(agent.id))).model_dump(include={"memory_count", "active_sessions"}),
        "of agent": (await done(client.get_agent_memories("bot", ListOptions(memory_type="decision")))).count,
        "session": (await done(client.get_session(session.id))).metadata,
        "sessions": (await done(client.list_sessions(agent.id))).count,
        "of session": (await done(client.get_session_memories(session.id))).count,
        "context": (await done(client.get_session_context(session.id, ContextOptions(max_tokens=200)))).memory_count,
        "closed": (await done(client.close_session(session.id))).status,
        "deleted": await done(client.delete_agent(agent.id)),
        "refused": [
            await refused(client.remember, agent.id, "Crawled https://example.com"),
            await refused(client.get_agent, "../x"),
            await refused(client.get_session, "sess_x"),
            await refused(client.remember, "no id", "text"),
            await refused(stranger.list_agents),
        ],
    }


class Noting:
    """A client that notes which of its calls were made."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.made: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.made.add(name)
        return getattr(self._client, name)


async def main() -> None:
    """Talk as one client or the other, and say which of its calls were not made."""
    which, url, key = sys.argv[1:]
    kind = {"sync": Memtrace, "async": AsyncMemtrace}[which]
    client = Noting(kind(url, key))
    answers = await calls(client, kind(url, "mtk_unknown"))
    closing = client.close()
    if inspect.isawaitable(closing):
        await closing
    public = {name for name, _ in inspect.getmembers(kind, callable) if not name.startswith("_")}
    print(json.dumps({**answers, "not called": sorted(public - client.made)}))


asyncio.run(main())
