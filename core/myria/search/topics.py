"""The topics above a hit in the snapshot: those of time, by its path, and the subject that it shares with other hits.

A leaf's subjects follow from its own words and from who else holds its keys: one statement looks up all keys of all
leaves that are not known yet, and the subjects with them. Rows are immutable within a snapshot; where an erasure has
taken them away since, a hit stays where time has it.
"""

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
from myria.search.nodes import topic_node
from myria.search.scopes import VisibleScope
from myria.search.snapshot_view import SnapshotView
from myria.search.visibility import Hidden
from myria.search.visible_blocks import BlockReader
from myria.topics.subjects.holders import stored_key, units_held
from myria.topics.subjects.keys import Claims, candidates
from myria.topics.subjects.trie import keys_of

Json = dict[str, Any]
Path = tuple[bytes, ...]
"""Renderings from a scope's root down to a leaf."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Topic:
    """A topic's JSON as its rendering has it, its scope, its span in microseconds since 1970, and its metadata."""

    body: Json
    scope_id: int
    first_at: int
    last_at: int
    words: str

    @classmethod
    def of(cls, row: asyncpg.Record, participants: Sequence[str]) -> Topic:
        """Return the topic of a row of a rendering or a subject."""
        return cls(
            body=topic_node(row, participants),
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


class Paths:
    """Finds paths and describes the topics on them; both are immutable, and cached."""

    def __init__(self, cache: ByteCache, blocks: BlockReader) -> None:
        self._cache = cache
        self._blocks = blocks

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
        for view in await self._blocks.of_scopes(connection, tenant, (scope,)):
            places = (view.seq == event_seq).nonzero()[0]
            if len(places):
                return await self.of_document(connection, tenant, scope, view, int(places[0]))
        return None


async def renderings(connection: Connection, tenant: str, rendering_ids: Sequence[bytes]) -> Sequence[asyncpg.Record]:
    """Return the rows of renderings, in no particular order."""
    if not rendering_ids:
        return ()
    return await connection.fetch(sql("retrieval.renderings"), tenant, list(rendering_ids))


SHARED_BY = 2
"""Leaves among the hits of an answer that a subject must hold to stand in it."""

_ROOT_BYTES = 150
_PLACE_BYTES = 250
_LEAF_BYTES = 130


@dataclass(frozen=True, kw_only=True, slots=True)
class Subjects:
    """The subjects of the leaves of some hits, best first, by leaf; and the topic of each."""

    of_leaf: Mapping[bytes, tuple[bytes, ...]]
    topics: Mapping[bytes, Topic]

    def places(self, leaves: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return under which subject leaves stand in an answer that holds these; none for a leaf that time places.

        The subject that most of the leaves share takes them all, then the one that most of the others share, and so on;
        of subjects that share as many, the one that the best hit names first. Leaves that come later join these.
        """
        left = dict.fromkeys(leaf for leaf in leaves if leaf in self.of_leaf)
        chosen: list[bytes] = []
        while left:
            sharing: dict[bytes, list[bytes]] = {}
            for leaf in left:
                for subject in self.of_leaf[leaf]:
                    sharing.setdefault(subject, []).append(leaf)
            best = max(sharing, key=lambda subject: len(sharing[subject]), default=None)
            if best is None or len(sharing[best]) < SHARED_BY:
                break
            chosen.append(best)
            for leaf in sharing[best]:
                del left[leaf]
        joined = {leaf: [subject for subject in chosen if subject in of] for leaf, of in self.of_leaf.items()}
        return {leaf: subjects[0] for leaf, subjects in joined.items() if subjects}


NO_SUBJECTS = Subjects(of_leaf={}, topics={})


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedSubject:
    """A subject that was asked for by its topic, in its scope."""

    scope: VisibleScope
    rendering_id: bytes
    topic: Topic
    events: int


_Place = tuple[tuple[bytes, Topic], ...]
"""The subjects of a leaf, best first, with their topics."""


class SubjectFinder:
    """Finds the subjects of leaves in a snapshot, and keeps them: they are immutable."""

    def __init__(self, cache: ByteCache) -> None:
        self._cache = cache

    async def of_hits(
        self,
        connection: Connection,
        snapshot: SnapshotView,
        found: Sequence[tuple[VisibleScope, Path]],
        words: Mapping[bytes, Topic],
    ) -> Subjects:
        """Return the subjects of the leaves at the ends of paths.

        Args:
            connection: the request's transaction.
            snapshot: its view.
            found: scopes and paths of hits; an empty path is of a fresh event, which no subject holds.
            words: what the leaves say.
        """
        leaves = {path[-1]: scope for scope, path in found if path}
        if not leaves or snapshot.snapshot_id is None or not snapshot.has_subjects:
            return NO_SUBJECTS
        since = await self._since(connection, snapshot, sorted({scope.scope_id for scope in leaves.values()}))
        found_now: dict[bytes, _Place] = {}
        missing: dict[bytes, VisibleScope] = {}
        for leaf, scope in leaves.items():
            if since[scope.scope_id] is None:
                continue
            known: _Place | None = self._cache.get(_key(snapshot, leaf))
            if known is None:
                missing[leaf] = scope
            else:
                found_now[leaf] = known
        if missing:
            found_now |= await self._look_up(connection, snapshot, missing, words, since)
        return Subjects(
            of_leaf={leaf: tuple(subject for subject, _ in place) for leaf, place in found_now.items()},
            topics=dict(entry for place in found_now.values() for entry in place),
        )

    async def named(
        self, connection: Connection, snapshot: SnapshotView, row: asyncpg.Record, id_: str
    ) -> NamedSubject | None:
        """Return the subject of a topic's or node's id; None where the request sees none such in its snapshot.

        Args:
            connection: the request's transaction.
            snapshot: its view.
            row: of `retrieval.topic` or `retrieval.node`, with a prefix.
            id_: what was asked for.
        """
        scope = snapshot.scope(row["scope_id"])
        if scope is None or snapshot.snapshot_id is None:
            return None
        since = (await self._since(connection, snapshot, [scope.scope_id]))[scope.scope_id]
        if since is None:
            return None
        subject = await connection.fetchrow(
            sql("retrieval.subjects_of_keys"),
            snapshot.tenant,
            snapshot.snapshot_id,
            [scope.scope_id],
            [stored_key(keys_of(row["prefix"])[0])],
            [since],
        )
        if subject is None or subject["rendering_id"] is None:
            return None
        if id_ not in (subject["topic_id"], subject["node_id"].hex()):
            return None
        return NamedSubject(
            scope=scope,
            rendering_id=subject["rendering_id"],
            topic=Topic.of(subject, scope.participants),
            events=subject["events"],
        )

    async def leaves(
        self, connection: Connection, snapshot: SnapshotView, rendering_id: bytes, *, most: int | None
    ) -> list[tuple[bytes, str]]:
        """Return rendering and topic_id of the leaves of a subject in the order of time, of `most` the last."""
        rows = await connection.fetch(sql("retrieval.leaves_of_subject"), snapshot.tenant, rendering_id, most)
        return [(row["rendering_id"], row["topic_id"]) for row in rows]

    async def all_leaves(
        self, connection: Connection, snapshot: SnapshotView, subject: NamedSubject
    ) -> frozenset[bytes]:
        """Return the renderings of all leaves of a subject: read once, and kept."""
        key = (snapshot.tenant, "leaves of a subject", subject.rendering_id)
        known: frozenset[bytes] | None = self._cache.get(key)
        if known is None:
            known = frozenset(
                leaf for leaf, _ in await self.leaves(connection, snapshot, subject.rendering_id, most=None)
            )
            self._cache.put(key, known, _ROOT_BYTES + _LEAF_BYTES * len(known))
        return known

    async def _since(
        self, connection: Connection, snapshot: SnapshotView, scope_ids: Sequence[int]
    ) -> dict[int, int | None]:
        """Return since which number the records of scopes count; None for a scope without subjects."""
        since: dict[int, int | None] = {}
        for scope_id in scope_ids:
            known: int | None = self._cache.get((snapshot.tenant, "subjects since", snapshot.snapshot_id, scope_id))
            if known is not None:
                since[scope_id] = known or None
        missing = [scope_id for scope_id in scope_ids if scope_id not in since]
        if missing:
            rows = await connection.fetch(
                sql("retrieval.subjects_since"), snapshot.tenant, snapshot.snapshot_id, missing
            )
            read = {row["scope_id"]: row["since"] for row in rows}
            for scope_id in missing:
                since[scope_id] = read.get(scope_id)
                key = (snapshot.tenant, "subjects since", snapshot.snapshot_id, scope_id)
                self._cache.put(key, read.get(scope_id, 0), _ROOT_BYTES)
        return since

    async def _look_up(
        self,
        connection: Connection,
        snapshot: SnapshotView,
        leaves: Mapping[bytes, VisibleScope],
        words: Mapping[bytes, Topic],
        since: Mapping[int, int | None],
    ) -> dict[bytes, _Place]:
        """Return the subjects of leaves that are not kept yet, from the records of their keys."""
        weights = {leaf: candidates(words[leaf].metadata) for leaf in leaves}
        wanted = {(scope.scope_id, key): stored_key(key) for leaf, scope in leaves.items() for key in weights[leaf]}
        rows = await connection.fetch(
            sql("retrieval.subjects_of_keys"),
            snapshot.tenant,
            snapshot.snapshot_id,
            [scope_id for scope_id, _ in wanted],
            list(wanted.values()),
            [since[scope_id] for scope_id, _ in wanted],
        )
        records = {(row["scope_id"], row["key"]): row for row in rows}
        held = {name: records.get((name[0], digest)) for name, digest in wanted.items()}
        units = {name: units_held(row["holders"]) if row is not None else 0 for name, row in held.items()}
        topics: dict[bytes, Topic] = {}
        places: dict[bytes, _Place] = {}
        for leaf, scope in leaves.items():
            scope_id = scope.scope_id
            place = []
            counted = {key: units[scope_id, key] for key in weights[leaf]}
            for key in Claims.of(words[leaf].metadata, weights[leaf]).filed(counted.__getitem__):
                row = held[scope_id, key]
                if row is None or row["topic_id"] is None:
                    continue
                subject = row["rendering_id"]
                topic = topics.get(subject) or Topic.of(row, scope.participants)
                topics[subject] = topic
                place.append((subject, topic))
            places[leaf] = tuple(place)
            size = _PLACE_BYTES + sum(topic.size for _, topic in place)
            self._cache.put(_key(snapshot, leaf), places[leaf], size)
        return places


def _key(snapshot: SnapshotView, leaf: bytes) -> tuple[str, str, str | None, bytes]:
    return (snapshot.tenant, "subjects", snapshot.snapshot_id, leaf)
