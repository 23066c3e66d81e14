"""Placing hits under what they are about: the subject that several of them share, instead of where time has them.

A leaf's subjects follow from its own words and from who else holds its keys: one statement looks up all keys of all
leaves that are not known yet, and the subjects with them. Rows are immutable within a snapshot; where an erasure has
taken them away since, a hit stays where time has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import asyncpg

from myria.db.database import Connection
from myria.db.queries import sql
from myria.search.cache import ByteCache
from myria.search.paths import Path, Topic
from myria.search.pin import Pinned
from myria.search.scopes import VisibleScope
from myria.topics.subjects.holders import stored_key, units_held
from myria.topics.subjects.keys import Claims, candidates
from myria.topics.subjects.trie import keys_of

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
    """Finds the subjects of leaves in a pinned snapshot, and keeps them: they are immutable."""

    def __init__(self, cache: ByteCache) -> None:
        self._cache = cache

    async def of_hits(
        self,
        connection: Connection,
        pinned: Pinned,
        found: Sequence[tuple[VisibleScope, Path]],
        words: Mapping[bytes, Topic],
    ) -> Subjects:
        """Return the subjects of the leaves at the ends of paths.

        Args:
            connection: the request's transaction.
            pinned: its view.
            found: scopes and paths of hits; an empty path is of a fresh event, which no subject holds.
            words: what the leaves say.
        """
        leaves = {path[-1]: scope for scope, path in found if path}
        if not leaves or pinned.snapshot_id is None or not pinned.has_subjects:
            return NO_SUBJECTS
        since = await self._since(connection, pinned, sorted({scope.scope_id for scope in leaves.values()}))
        found_now: dict[bytes, _Place] = {}
        missing: dict[bytes, VisibleScope] = {}
        for leaf, scope in leaves.items():
            if since[scope.scope_id] is None:
                continue
            known: _Place | None = self._cache.get(_key(pinned, leaf))
            if known is None:
                missing[leaf] = scope
            else:
                found_now[leaf] = known
        if missing:
            found_now |= await self._look_up(connection, pinned, missing, words, since)
        return Subjects(
            of_leaf={leaf: tuple(subject for subject, _ in place) for leaf, place in found_now.items()},
            topics=dict(entry for place in found_now.values() for entry in place),
        )

    async def named(self, connection: Connection, pinned: Pinned, row: asyncpg.Record, id_: str) -> NamedSubject | None:
        """Return the subject of a topic's or node's id; None where the request sees none such in its snapshot.

        Args:
            connection: the request's transaction.
            pinned: its view.
            row: of `retrieval.topic` or `retrieval.node`, with a prefix.
            id_: what was asked for.
        """
        scope = pinned.scope(row["scope_id"])
        if scope is None or pinned.snapshot_id is None:
            return None
        since = (await self._since(connection, pinned, [scope.scope_id]))[scope.scope_id]
        if since is None:
            return None
        subject = await connection.fetchrow(
            sql("retrieval.subjects_of_keys"),
            pinned.tenant,
            pinned.snapshot_id,
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
        self, connection: Connection, pinned: Pinned, rendering_id: bytes, *, most: int | None
    ) -> list[tuple[bytes, str]]:
        """Return rendering and topic_id of the leaves of a subject in the order of time, of `most` the last."""
        rows = await connection.fetch(sql("retrieval.leaves_of_subject"), pinned.tenant, rendering_id, most)
        return [(row["rendering_id"], row["topic_id"]) for row in rows]

    async def all_leaves(self, connection: Connection, pinned: Pinned, subject: NamedSubject) -> frozenset[bytes]:
        """Return the renderings of all leaves of a subject: read once, and kept."""
        key = (pinned.tenant, "leaves of a subject", subject.rendering_id)
        known: frozenset[bytes] | None = self._cache.get(key)
        if known is None:
            known = frozenset(
                leaf for leaf, _ in await self.leaves(connection, pinned, subject.rendering_id, most=None)
            )
            self._cache.put(key, known, _ROOT_BYTES + _LEAF_BYTES * len(known))
        return known

    async def _since(self, connection: Connection, pinned: Pinned, scope_ids: Sequence[int]) -> dict[int, int | None]:
        """Return since which number the records of scopes count; None for a scope without subjects."""
        since: dict[int, int | None] = {}
        for scope_id in scope_ids:
            known: int | None = self._cache.get((pinned.tenant, "subjects since", pinned.snapshot_id, scope_id))
            if known is not None:
                since[scope_id] = known or None
        missing = [scope_id for scope_id in scope_ids if scope_id not in since]
        if missing:
            rows = await connection.fetch(sql("retrieval.subjects_since"), pinned.tenant, pinned.snapshot_id, missing)
            read = {row["scope_id"]: row["since"] for row in rows}
            for scope_id in missing:
                since[scope_id] = read.get(scope_id)
                key = (pinned.tenant, "subjects since", pinned.snapshot_id, scope_id)
                self._cache.put(key, read.get(scope_id, 0), _ROOT_BYTES)
        return since

    async def _look_up(
        self,
        connection: Connection,
        pinned: Pinned,
        leaves: Mapping[bytes, VisibleScope],
        words: Mapping[bytes, Topic],
        since: Mapping[int, int | None],
    ) -> dict[bytes, _Place]:
        """Return the subjects of leaves that are not kept yet, from the records of their keys."""
        weights = {leaf: candidates(words[leaf].metadata) for leaf in leaves}
        wanted = {(scope.scope_id, key): stored_key(key) for leaf, scope in leaves.items() for key in weights[leaf]}
        rows = await connection.fetch(
            sql("retrieval.subjects_of_keys"),
            pinned.tenant,
            pinned.snapshot_id,
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
            self._cache.put(_key(pinned, leaf), places[leaf], size)
        return places


def _key(pinned: Pinned, leaf: bytes) -> tuple[str, str, str | None, bytes]:
    return (pinned.tenant, "subjects", pinned.snapshot_id, leaf)
