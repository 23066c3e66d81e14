"""Things that have a key in a space, kept as memories: what stores of agent frameworks are made of.

A space is a path of names. A thing is a memory whose text says what it is about, and whose metadata hold it whole; tags
name its key and the spaces above it, so that it is found without looking at others. Two things of one key cannot be.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from myria_client import _routes as routes
from myria_client._calls import Call
from myria_client._errors import Conflict, Invalid, NotFound
from myria_client._flows import Flow
from myria_client.records import Memory, MemoryPage, NewMemory

Space = tuple[str, ...]
DEEPEST = 40
_UNSAID = "x.unsaid"
_ATTEMPTS = 50
_JUST_NOW = {"duplicate_memory", "already_superseded", "note_not_found"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    """One thing; `memory_id` is that of the memory which holds it."""

    space: Space
    key: str
    value: Mapping[str, Any]
    created_at: datetime
    updated_at: datetime
    memory_id: str
    is_said: bool


class Shelf:
    """The things of one store.

    Args:
        agent: as whom they are kept: a letter, then letters, digits, `_` and `-`. Stores of one agent are one.
        kind: the event type of its memories, which tells them from others of the agent.
    """

    def __init__(self, agent: str, kind: str) -> None:
        self._agent = agent
        self._kind = kind

    def put(self, space: Space, key: str, value: Mapping[str, Any], said: str | None) -> Flow[Thing]:
        """Keep a thing, in the place of one with the same key.

        Args:
            said: what it is about, for searches; None keeps it out of them.

        Raises:
            Invalid: a space that is too deep.
        """
        if len(space) > DEEPEST:
            raise Invalid("INVALID_ARGUMENT", f"a namespace has at most {DEEPEST} parts", 400)
        content = (said or "").strip() or key or "-"
        tags = [self._key_tag(key), *(_space_tag(space[:length]) for length in range(len(space) + 1))]
        tags += [] if said else [_UNSAID]
        metadata = {"space": list(space), "key": key, "value": dict(value)}
        for _ in range(_ATTEMPTS):
            found = yield from self._find(space, key)
            changes = {"content": content, "metadata": metadata, "tags": tags}
            try:
                if found is not None:
                    kept: Memory = yield routes.amend_memory(found.id, changes)
                else:
                    new = NewMemory(
                        agent_id=self._agent,
                        content=content,
                        session_id=self._session(space),
                        event_type=self._kind,
                        metadata=metadata,
                        tags=tags,
                        dedup_key=_digest("thing", self._agent, self._kind, *space, "", key),
                    )
                    kept = yield routes.keep(new, None)
            except (Conflict, NotFound) as error:
                if error.code not in _JUST_NOW:
                    raise
                continue  # somebody else put it there, changed it, or took it away
            return _thing(kept)
        raise Conflict("already_superseded", "this key is being written again and again; retry", 409)

    def get(self, space: Space, key: str) -> Flow[Thing | None]:
        """Return a thing, None where there is none."""
        found = yield from self._find(space, key)
        return None if found is None else _thing(found)

    def first(self, key: str) -> Flow[Thing | None]:
        """Return the newest thing of a key, in whatever space; None where there is none."""
        page: MemoryPage = yield routes.list_memories(
            {"event_type": self._kind, "tags": [self._key_tag(key)], "agent_id": self._agent}, limit=10, cursor=None
        )
        return next((thing for thing in _things(page, ()) if thing.key == key), None)

    def delete(self, space: Space, key: str) -> Flow[bool]:
        """Take a thing away; return whether there was one."""
        found = yield from self._find(space, key)
        if found is None:
            return False
        try:
            yield routes.withdraw_memory(found.id)
        except NotFound:
            return False
        return True

    def each(self, above: Space, *, oldest_first: bool = False) -> Generator[Call[Any], Any, list[Thing]]:
        """Return all things in a space and those below it, newest first."""
        things: list[Thing] = []
        cursor: str | None = None
        while True:
            page: MemoryPage = yield routes.list_memories(
                {
                    "agent_id": self._agent,
                    "event_type": self._kind,
                    "tags": [_space_tag(above)],
                    "order": "asc" if oldest_first else "desc",
                },
                limit=routes.MOST_LISTED,
                cursor=cursor,
            )
            things += _things(page, above)
            cursor = page.next_cursor
            if cursor is None:
                return things

    def search(self, above: Space, query: str, most: int) -> Flow[list[Thing]]:
        """Return the things in a space and below it that are most about something, best first.

        Where fewer have anything to do with it, the newest others follow, as stores of vectors have it.
        """
        filters: routes.SearchFilters = {
            "query": query,
            "agent_id": self._agent,
            "event_types": [self._kind],
            "tags": [_space_tag(above)],
        }
        page: MemoryPage
        things: list[Thing] = []
        for limit in (max(1, min(most, routes.MOST_LISTED)), routes.MOST_LISTED):
            page = yield routes.search_memories(filters, limit=limit, cursor=None)
            things = [thing for thing in _things(page, above) if thing.is_said]
            if len(things) >= most or not page.has_more:
                break  # else some of the page are no things that searches find
        if len(things) >= most or page.has_more:
            return things[:most]
        newest: MemoryPage = yield routes.list_memories(
            {"agent_id": self._agent, "event_type": self._kind, "tags": [_space_tag(above)]},
            limit=max(1, min(most + len(page.memories), routes.MOST_LISTED)),
            cursor=None,
        )
        found = {thing.memory_id for thing in things}
        things += [one for one in _things(newest, above) if one.is_said and one.memory_id not in found]
        return things[:most]

    def _find(self, space: Space, key: str) -> Flow[Memory | None]:
        page: MemoryPage = yield routes.list_memories(
            {
                "session_id": self._session(space),
                "event_type": self._kind,
                "tags": [self._key_tag(key)],
                "agent_id": self._agent,
            },
            limit=10,
            cursor=None,
        )
        for memory in page.memories:
            thing = _thing(memory)
            if (thing.space, thing.key) == (space, key):
                return memory
        return None

    def _session(self, space: Space) -> str:
        return f"{self._agent[:40]}-{_digest(self._agent, self._kind, *space)}"

    def _key_tag(self, key: str) -> str:
        return f"k.{_digest(key)}"


def _things(page: MemoryPage, above: Space) -> Iterator[Thing]:
    for memory in page.memories:
        thing = _thing(memory)
        if thing.space[: len(above)] == above:
            yield thing


def _thing(memory: Memory) -> Thing:
    held = memory.metadata or {}
    return Thing(
        space=tuple(held["space"]),
        key=held["key"],
        value=held["value"],
        created_at=memory.time,
        updated_at=memory.updated_at or memory.time,
        memory_id=memory.id,
        is_said=_UNSAID not in memory.tags,
    )


def _space_tag(space: Space) -> str:
    return f"s.{_digest(*space)}"


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def said_of(value: Any) -> str:
    """Return the texts of a JSON value, in order, for searches."""
    texts: list[str] = []
    pending: list[Any] = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, str):
            texts.append(one)
        elif isinstance(one, Mapping):
            pending += reversed(list(one.values()))
        elif isinstance(one, list | tuple):
            pending += reversed(one)
        elif one is not None and not isinstance(one, bool):
            texts.append(str(one))
    return "\n".join(texts)
