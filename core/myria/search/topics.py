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
    """A topic as its rendering has it: its JSON without children, its scope, its span, and its metadata as JSON text.

    The span from `first_at` to `last_at` is in microseconds since 1970.
    """

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
        """Return the topic's JSON, with neutral words in place of its own if it may hold a hidden event."""
        return hidden.topic(self.body, self.scope_id, self.first_at, self.last_at)


SHARED_BY = 2
"""A subject stands in an answer if it holds at least so many of the leaves of its hits."""

_ROOT_BYTES = 150
_PLACE_BYTES = 250
_LEAF_BYTES = 130


@dataclass(frozen=True, kw_only=True, slots=True)
class Subjects:
    """The subjects of hits' leaves: `of_leaf` gives those of a leaf, best first, `topics` the topic of a subject."""

    of_leaf: Mapping[bytes, tuple[bytes, ...]]
    topics: Mapping[bytes, Topic]

    def places(self, leaves: Sequence[bytes]) -> dict[bytes, bytes]:
        """Choose the subject under which each leaf stands in an answer; leaves without one stay under topics of time.

        The subject that most of the leaves share takes all of these, then the one that most of the other leaves share,
        and so on; of subjects shared by equally many, the first of the best hit wins. All other leaves that have a
        chosen subject, such as those of later hits, join it.

        Args:
            leaves: those of the answer, that of the best hit first.
        """
        unplaced = dict.fromkeys(leaf for leaf in leaves if leaf in self.of_leaf)
        chosen: list[bytes] = []
        while unplaced:
            leaves_of: dict[bytes, list[bytes]] = {}
            for leaf in unplaced:
                for subject in self.of_leaf[leaf]:
                    leaves_of.setdefault(subject, []).append(leaf)
            most_shared = max(leaves_of, key=lambda subject: len(leaves_of[subject]), default=None)
            if most_shared is None or len(leaves_of[most_shared]) < SHARED_BY:
                break
            chosen.append(most_shared)
            for leaf in leaves_of[most_shared]:
                del unplaced[leaf]
        chosen_of_leaf = {
            leaf: [subject for subject in chosen if subject in subjects_of_leaf]
            for leaf, subjects_of_leaf in self.of_leaf.items()
        }
        return {leaf: subjects[0] for leaf, subjects in chosen_of_leaf.items() if subjects}


NO_SUBJECTS = Subjects(of_leaf={}, topics={})


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedSubject:
    """A subject that a request names by its topic_id or node_id; `events` is how many it holds."""

    scope: VisibleScope
    rendering_id: bytes
    topic: Topic
    events: int


_Place = tuple[tuple[bytes, Topic], ...]
"""The subjects of one leaf, best first: each as (rendering_id, topic)."""


class TopicReader:
    """Finds the paths of documents, the topics on them and the subjects of leaves: none changes, all are cached."""

    def __init__(self, cache: ByteCache, blocks: BlockReader) -> None:
        self._cache = cache
        self._blocks = blocks

    async def of_document(self, connection: Connection, tenant: str, scope: VisibleScope, view: View, doc: int) -> Path:
        """Return the path of one document of a search block or a pack, from its scope's root down to its leaf."""
        inside = view.path(doc)[::-1]
        if inside[0] == scope.root or scope.root is None:
            return inside
        above = await self.above(connection, tenant, scope.root, scope.blocks)
        return above[inside[0]] + inside

    async def above(
        self, connection: Connection, tenant: str, root: bytes, blocks: tuple[bytes, ...]
    ) -> dict[bytes, Path]:
        """Return, by block's rendering, the path from the scope's root to just above that rendering."""
        key = (tenant, "above", root)
        path_above: dict[bytes, Path] | None = self._cache.get(key)
        if path_above is None:
            parents = {
                row["rendering_id"]: row["parent_id"]
                for row in await connection.fetch(sql("retrieval.above_blocks"), tenant, root, list(blocks))
            }
            path_above = {}
            for block in blocks:
                path: list[bytes] = []
                above = parents[block]
                while above is not None:
                    path.append(above)
                    above = parents[above]
                path_above[block] = tuple(reversed(path))
            self._cache.put(key, path_above, 200 + sum(200 + 80 * len(path) for path in path_above.values()))
        return path_above

    async def topics(
        self, connection: Connection, tenant: str, paths: Sequence[tuple[VisibleScope, Path]], *, hidden: Hidden
    ) -> dict[bytes, Json]:
        """Return the JSON of every topic on some paths, by rendering, without children.

        A topic that may hold a hidden event gets neutral words in place of its own.
        """
        found = await self.found(connection, tenant, paths)
        return {rendering_id: topic.shown(hidden) for rendering_id, topic in found.items()}

    async def found(
        self, connection: Connection, tenant: str, paths: Sequence[tuple[VisibleScope, Path]]
    ) -> dict[bytes, Topic]:
        """Return every topic on some paths, by rendering, with all its words: hiding some is left to the caller."""
        topics: dict[bytes, Topic] = {}
        missing: dict[bytes, VisibleScope] = {}
        for scope, path in paths:
            for rendering_id in path:
                if rendering_id in topics or rendering_id in missing:
                    continue
                cached: Topic | None = self._cache.get((tenant, "topic", rendering_id))
                if cached is None:
                    missing[rendering_id] = scope
                else:
                    topics[rendering_id] = cached
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

    async def subjects_of(
        self,
        connection: Connection,
        snapshot: SnapshotView,
        found: Sequence[tuple[VisibleScope, Path]],
        words: Mapping[bytes, Topic],
    ) -> Subjects:
        """Return the subjects (topics across conversations) that hold the leaves above hits.

        A leaf of a scope whose subjects are not built in this snapshot has none.

        Args:
            connection: the request's transaction.
            snapshot: its view.
            found: scopes and paths of hits; a fresh event has an empty path, and no subject.
            words: the topics of the leaves; a leaf is looked up in the subjects of its keywords.
        """
        leaves = {path[-1]: scope for scope, path in found if path}
        if not leaves or snapshot.snapshot_id is None or not snapshot.has_subjects:
            return NO_SUBJECTS
        since = await self._numbers_since(connection, snapshot, sorted({scope.scope_id for scope in leaves.values()}))
        place_of_leaf: dict[bytes, _Place] = {}
        missing: dict[bytes, VisibleScope] = {}
        for leaf, scope in leaves.items():
            if since[scope.scope_id] is None:
                continue
            cached: _Place | None = self._cache.get(_key(snapshot, leaf))
            if cached is None:
                missing[leaf] = scope
            else:
                place_of_leaf[leaf] = cached
        if missing:
            place_of_leaf |= await self._look_up(connection, snapshot, missing, words, since)
        return Subjects(
            of_leaf={leaf: tuple(subject for subject, _ in place) for leaf, place in place_of_leaf.items()},
            topics=dict(entry for place in place_of_leaf.values() for entry in place),
        )

    async def named_subject(
        self, connection: Connection, snapshot: SnapshotView, row: asyncpg.Record, id_: str
    ) -> NamedSubject | None:
        """Return the subject that a topic_id or node_id names; None if the request's snapshot shows it no such subject.

        Args:
            connection: the request's transaction.
            snapshot: its view.
            row: the id's row of `retrieval.topic` or `retrieval.node`, whose prefix is not null.
            id_: the topic_id or node_id.
        """
        scope = snapshot.scope(row["scope_id"])
        if scope is None or snapshot.snapshot_id is None:
            return None
        since = (await self._numbers_since(connection, snapshot, [scope.scope_id]))[scope.scope_id]
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
        """Return (rendering_id, topic_id) of the last `most` leaves of a subject (None: of all), in order of time."""
        rows = await connection.fetch(sql("retrieval.leaves_of_subject"), snapshot.tenant, rendering_id, most)
        return [(row["rendering_id"], row["topic_id"]) for row in rows]

    async def all_leaves(
        self, connection: Connection, snapshot: SnapshotView, subject: NamedSubject
    ) -> frozenset[bytes]:
        """Return the rendering ids of all leaves of a subject, from the cache after the first time."""
        key = (snapshot.tenant, "leaves of a subject", subject.rendering_id)
        cached: frozenset[bytes] | None = self._cache.get(key)
        if cached is None:
            cached = frozenset(
                leaf for leaf, _ in await self.leaves(connection, snapshot, subject.rendering_id, most=None)
            )
            self._cache.put(key, cached, _ROOT_BYTES + _LEAF_BYTES * len(cached))
        return cached

    async def _numbers_since(
        self, connection: Connection, snapshot: SnapshotView, scope_ids: Sequence[int]
    ) -> dict[int, int | None]:
        """Return, by scope, the number from which on records of its subjects count; None without any subject."""
        since: dict[int, int | None] = {}
        for scope_id in scope_ids:
            cached: int | None = self._cache.get((snapshot.tenant, "subjects since", snapshot.snapshot_id, scope_id))
            if cached is not None:
                since[scope_id] = cached or None  # 0 is kept for a scope without subjects
        missing = [scope_id for scope_id in scope_ids if scope_id not in since]
        if missing:
            rows = await connection.fetch(
                sql("retrieval.subjects_since"), snapshot.tenant, snapshot.snapshot_id, missing
            )
            since_of_scope = {row["scope_id"]: row["since"] for row in rows}
            for scope_id in missing:
                since[scope_id] = since_of_scope.get(scope_id)
                key = (snapshot.tenant, "subjects since", snapshot.snapshot_id, scope_id)
                self._cache.put(key, since_of_scope.get(scope_id, 0), _ROOT_BYTES)
        return since

    async def _look_up(
        self,
        connection: Connection,
        snapshot: SnapshotView,
        leaves: Mapping[bytes, VisibleScope],
        words: Mapping[bytes, Topic],
        since: Mapping[int, int | None],
    ) -> dict[bytes, _Place]:
        """Read the subjects of leaves that are not cached yet, from the records of the leaves' keys, and cache them."""
        key_weights = {leaf: candidates(words[leaf].metadata) for leaf in leaves}
        digest_of_key = {
            (scope.scope_id, key): stored_key(key) for leaf, scope in leaves.items() for key in key_weights[leaf]
        }
        rows = await connection.fetch(
            sql("retrieval.subjects_of_keys"),
            snapshot.tenant,
            snapshot.snapshot_id,
            [scope_id for scope_id, _ in digest_of_key],
            list(digest_of_key.values()),
            [since[scope_id] for scope_id, _ in digest_of_key],
        )
        records = {(row["scope_id"], row["key"]): row for row in rows}
        record_of_key = {
            scoped_key: records.get((scoped_key[0], digest)) for scoped_key, digest in digest_of_key.items()
        }
        units_of_key = {
            scoped_key: units_held(row["holders"]) if row is not None else 0
            for scoped_key, row in record_of_key.items()
        }
        topics: dict[bytes, Topic] = {}
        places: dict[bytes, _Place] = {}
        for leaf, scope in leaves.items():
            scope_id = scope.scope_id
            subjects = []
            unit_counts = {key: units_of_key[scope_id, key] for key in key_weights[leaf]}
            for key in Claims.of(words[leaf].metadata, key_weights[leaf]).filed(unit_counts.__getitem__):
                row = record_of_key[scope_id, key]
                if row is None or row["topic_id"] is None:
                    continue
                subject = row["rendering_id"]
                topic = topics.get(subject) or Topic.of(row, scope.participants)
                topics[subject] = topic
                subjects.append((subject, topic))
            places[leaf] = tuple(subjects)
            size = _PLACE_BYTES + sum(topic.size for _, topic in subjects)
            self._cache.put(_key(snapshot, leaf), places[leaf], size)
        return places


async def renderings(connection: Connection, tenant: str, rendering_ids: Sequence[bytes]) -> Sequence[asyncpg.Record]:
    """Return the rows of renderings, in no particular order."""
    if not rendering_ids:
        return ()
    return await connection.fetch(sql("retrieval.renderings"), tenant, list(rendering_ids))


def _key(snapshot: SnapshotView, leaf: bytes) -> tuple[str, str, str | None, bytes]:
    return (snapshot.tenant, "subjects", snapshot.snapshot_id, leaf)
