"""The topics above a hit, in the pinned snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg
import orjson

from myria.db.clock import to_microseconds
from myria.db.database import Connection
from myria.db.queries import sql
from myria.index.block import View
from myria.search.cache import ByteCache
from myria.search.gathering import Gatherer
from myria.search.nodes import topic_node
from myria.search.scopes import VisibleScope
from myria.search.tree import Cost, topic_cost
from myria.search.withdrawn import Hidden

Json = dict[str, Any]
Path = tuple[bytes, ...]
"""Renderings from a scope's root down to a leaf."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Topic:
    """A topic's JSON as its rendering has it, its scope, its span in microseconds since 1970, and its metadata.

    `cost` is what it takes in an answer's full view, with the list of its children.
    """

    body: Json
    cost: Cost
    scope_id: int
    first_at: int
    last_at: int
    words: str

    @classmethod
    def of(cls, row: asyncpg.Record, participants: Sequence[str]) -> Topic:
        """Return the topic of a row of a rendering or a subject."""
        body = topic_node(row, participants)
        return cls(
            body=body,
            cost=topic_cost(body),
            scope_id=row["scope_id"],
            first_at=to_microseconds(row["first_at"]),
            last_at=to_microseconds(row["last_at"]),
            words=row["metadata"],
        )

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the rendering says, beside label and summary."""
        metadata: Mapping[str, Any] = orjson.loads(self.words)
        return metadata

    @property
    def size(self) -> int:
        """About how many bytes of memory it holds."""
        return 1300 + 2 * (len(self.body["summary"]) + len(self.body["label"])) + len(self.words)

    def shown(self, hidden: Hidden) -> Json:
        """Return its JSON as it may be shown: without words of its own where it may hold what is hidden."""
        return hidden.topic(self.body, self.scope_id, self.first_at, self.last_at)


class ShownTopics:
    """Topics as one request may see them.

    `bodies` is their JSON by rendering; `costs` what those of them take that are shown as they are.
    """

    def __init__(self, hidden: Hidden) -> None:
        self._hidden = hidden
        self.bodies: dict[bytes, Json] = {}
        self.costs: dict[bytes, Cost] = {}

    def add(self, topics: Mapping[bytes, Topic]) -> None:
        """Add topics, whatever may be shown of them."""
        for rendering_id, topic in topics.items():
            self.bodies[rendering_id] = shown = topic.shown(self._hidden)
            if shown is topic.body:
                self.costs[rendering_id] = topic.cost


class Paths:
    """Finds paths and describes the topics on them; both are immutable, and cached."""

    def __init__(self, cache: ByteCache, gatherer: Gatherer) -> None:
        self._cache = cache
        self._gatherer = gatherer

    async def of_document(self, connection: Connection, tenant: str, scope: VisibleScope, view: View, doc: int) -> Path:
        """Return the path of one document of a search block, or of a pack of them."""
        inside = view.path(doc)[::-1]
        if inside[0] == scope.root or scope.root is None:
            return inside
        above = await self.above(connection, tenant, scope.root, scope.blocks)
        return above[inside[0]] + inside

    async def above(
        self, connection: Connection, tenant: str, root: bytes, blocks: tuple[bytes, ...]
    ) -> dict[bytes, Path]:
        """Return, for each block's rendering, the renderings from its scope's root to just above it."""
        key = (tenant, "above", root)
        known: dict[bytes, Path] | None = self._cache.get(key)
        if known is None:
            parents = {
                row["rendering_id"]: row["parent_id"]
                for row in await connection.fetch(sql("retrieval.above_blocks"), tenant, root, list(blocks))
            }
            known = {}
            for block in blocks:
                path: list[bytes] = []
                above = parents[block]
                while above is not None:
                    path.append(above)
                    above = parents[above]
                known[block] = tuple(reversed(path))
            self._cache.put(key, known, 200 + sum(200 + 80 * len(path) for path in known.values()))
        return known

    async def topics(
        self, connection: Connection, tenant: str, paths: Sequence[tuple[VisibleScope, Path]], *, hidden: Hidden
    ) -> dict[bytes, Json]:
        """Return the JSON of every topic on these paths, by rendering, without children.

        One that may hold an event that is hidden has no words of its own.
        """
        found = await self.found(connection, tenant, paths)
        return {rendering_id: topic.shown(hidden) for rendering_id, topic in found.items()}

    async def found(
        self, connection: Connection, tenant: str, paths: Sequence[tuple[VisibleScope, Path]]
    ) -> dict[bytes, Topic]:
        """Return every topic on these paths, by rendering, whatever may be shown of it."""
        topics: dict[bytes, Topic] = {}
        missing: dict[bytes, VisibleScope] = {}
        for scope, path in paths:
            for rendering_id in path:
                if rendering_id in topics or rendering_id in missing:
                    continue
                known: Topic | None = self._cache.get((tenant, "topic", rendering_id))
                if known is None:
                    missing[rendering_id] = scope
                else:
                    topics[rendering_id] = known
        for row in await renderings(connection, tenant, list(missing)):
            topic = Topic.of(row, missing[row["rendering_id"]].participants)
            topics[row["rendering_id"]] = topic
            self._cache.put((tenant, "topic", row["rendering_id"]), topic, topic.size)
        return topics

    async def locate(self, connection: Connection, tenant: str, scope: VisibleScope, event_seq: int) -> Path | None:
        """Return the path of an event by its number, or None when the tree does not hold it."""
        for view in await self._gatherer.views(connection, tenant, scope):
            places = (view.seq == event_seq).nonzero()[0]
            if len(places):
                return await self.of_document(connection, tenant, scope, view, int(places[0]))
        return None


async def renderings(connection: Connection, tenant: str, rendering_ids: Sequence[bytes]) -> Sequence[asyncpg.Record]:
    """Return the rows of renderings, in no particular order."""
    if not rendering_ids:
        return ()
    return await connection.fetch(sql("retrieval.renderings"), tenant, list(rendering_ids))
