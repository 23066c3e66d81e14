"""Items of one conversation in their order, kept as memories: what sessions of agent frameworks are made of."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from myria_client import _routes as routes
from myria_client._calls import new_key
from myria_client._errors import NotFound
from myria_client._flows import Flow
from myria_client.records import Memory, MemoryPage, NewMemory

Json = dict[str, Any]
_BATCH = 100
_EVENT_TYPE = "conversation_item"


class Transcript:
    """One conversation.

    Args:
        agent: as whom its items are kept.
        session_id: any text; conversations of one agent and id are one.
        said: returns the words of an item, for searches.
    """

    def __init__(self, agent: str, session_id: str, said: Callable[[Mapping[str, Any]], str]) -> None:
        self._agent = agent
        self._session = session_id if re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,127}", session_id) else _named(session_id)
        self._said = said

    def add(self, items: Sequence[Mapping[str, Any]]) -> Flow[None]:
        """Keep items behind those that are there, a hundred at once."""
        for start in range(0, len(items), _BATCH):
            key = new_key()
            bodies = [
                NewMemory(
                    agent_id=self._agent,
                    content=self._said(item).strip() or str(item.get("type") or item.get("role") or "item"),
                    session_id=self._session,
                    event_type=_EVENT_TYPE,
                    metadata={"item": dict(item)},
                    dedup_key=f"{key}-{place}",
                ).to_json()
                for place, item in enumerate(items[start : start + _BATCH])
            ]
            yield routes.keep_many(bodies, atomic=True, key=key)

    def last(self, most: int | None) -> Flow[list[Json]]:
        """Return the newest items in the order in which they came; all of them where `most` is None."""
        memories = yield from self._newest(most)
        return [dict((memory.metadata or {})["item"]) for memory in reversed(memories)]

    def pop(self) -> Flow[Json | None]:
        """Take the newest item away and return it; None where there is none."""
        while True:
            memories = yield from self._newest(1)
            if not memories:
                return None
            try:
                yield routes.withdraw_memory(memories[0].id)
            except NotFound:
                continue  # somebody else took it just now
            return dict((memories[0].metadata or {})["item"])

    def clear(self) -> Flow[None]:
        """Take all items away."""
        memories = yield from self._newest(None)
        for memory in memories:
            try:
                yield routes.withdraw_memory(memory.id)
            except NotFound:
                continue

    def _newest(self, most: int | None) -> Flow[list[Memory]]:
        memories: list[Memory] = []
        cursor: str | None = None
        while most is None or len(memories) < most:
            left = routes.MOST_LISTED if most is None else min(most - len(memories), routes.MOST_LISTED)
            page: MemoryPage = yield routes.list_memories(
                {"agent_id": self._agent, "session_id": self._session, "event_type": _EVENT_TYPE},
                limit=left,
                cursor=cursor,
            )
            memories += page.memories
            cursor = page.next_cursor
            if cursor is None:
                break
        return memories


def _named(session_id: str) -> str:
    return f"s-{hashlib.sha256(session_id.encode('utf-8', 'surrogatepass')).hexdigest()[:40]}"
