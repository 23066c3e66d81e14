"""What a question finds, as values: for answers that are no trees, such as those of an agent's memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import asyncpg
import orjson

from myria.db.database import Connection
from myria.db.pages import PageRoom
from myria.db.queries import sql
from myria.log.withdrawal.model import NEUTRAL_LABEL
from myria.search import cursors
from myria.search.cursors import Cursor
from myria.search.handles import Handles
from myria.search.queries import EventNodesQuery
from myria.search.ranking import Hit
from myria.search.read_slots import ReadSlot
from myria.search.result import SearchResult
from myria.search.searching import Search
from myria.search.superseded import successors
from myria.search.topics import SHARED_BY, TopicReader
from myria.topics.subjects.words import latest_of

Json = dict[str, Any]

_MOST_BYTES = 1024 * 1024
"""About how many bytes of payloads are held of one batch of hits."""

_BEFORE_ALL = 1 << 62
"""A place before every hit, in any order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEvent:
    """One hit with its event; `at` in microseconds since 1970 UTC, `utc_offset` in minutes east of UTC.

    `superseded_by` is the event_seq of a superseded event's successor, None if that may not be seen. `change` tells
    which side of a change the event is, if the question asks for changes; `by_meaning` that it holds no word of the
    question.
    """

    event_seq: int
    event_id: str
    scope_id: int
    at: int
    type: str | None
    context_id: str | None
    payload: Json
    score: int
    superseded: bool = False
    superseded_by: int | None = None
    change: Literal["newer", "older"] | None = None
    utc_offset: int = 0
    by_meaning: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundTopic:
    """A leaf topic above hits, as its snapshot has it: never one that may hold words of what was withdrawn.

    `event_seqs` are the hits below it.
    """

    topic_id: str
    label: str
    summary: str
    keywords: tuple[str, ...]
    event_seqs: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundSubject:
    """What several leaves above hits have in common, as its snapshot has it, with its latest state; see `FoundTopic`.

    `event_seqs` are the hits below it, `topic_ids` the leaves above these.
    """

    label: str
    latest: str
    event_seqs: tuple[int, ...]
    topic_ids: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """Hits in order, the cursor `here` at which they begin, and that of the hits that follow (None at the end)."""

    events: tuple[FoundEvent, ...]
    here: Cursor
    following: Cursor | None
    result: SearchResult


class EventFinder:
    """Finds events within one transaction, whose connection is there for further look-ups."""

    def __init__(
        self,
        search: Search,
        topics: TopicReader,
        *,
        connection: Connection,
        slot: ReadSlot,
        tenant: str,
        secret: bytes,
        cursor_lifetime_s: float,
    ) -> None:
        self.connection = connection
        self.tenant = tenant
        self.handles = Handles(secret, tenant)
        self._search = search
        self._topics = topics
        self._slot = slot
        self._secret = secret
        self._lifetime = cursor_lifetime_s

    def cursor(self, text: str, digest: str) -> Cursor:
        """Decode the text of a cursor.

        Raises:
            CursorInvalid: forged, damaged, or made for another query.
            CursorExpired: older than its lifetime.
        """
        return cursors.decode(text, digest=digest, secret=self._secret, lifetime=self._lifetime)

    def cursor_text(self, cursor: Cursor, digest: str) -> str:
        """Return the signed text of a cursor."""
        return cursors.encode(cursor, digest=digest, secret=self._secret)

    async def find(self, query: EventNodesQuery, *, cursor: Cursor | None = None, at: int | None = None) -> Found:
        """Return the best `query.limit` hits; if payloads are large, fewer, and the others follow.

        Args:
            cursor: hits start after it, in the snapshot view of its first page.
            at: as in `open_snapshot`.

        Raises:
            CursorExpired: the view is gone.
        """
        result = await self._search.find(
            self.connection, self.tenant, query, limit=query.limit, cursor=cursor, slot=self._slot, at=at
        )
        here = cursor or result.cursor((_BEFORE_ALL,) * 3, period_end=cursors.period_end(self._lifetime))
        events = await self._read_events(result, query)
        if len(events) < len(result.hits):
            result = replace(result, hits=result.hits[: len(events)], more=True)
        following = result.cursor_after(result.hits[-1], period_end=here.period_end) if result.more else None
        return Found(events=events, here=here, following=following, result=result)

    async def _read_events(self, result: SearchResult, query: EventNodesQuery) -> tuple[FoundEvent, ...]:
        """Return the hits' events, or as many of the first ones as have room in memory."""
        events: list[FoundEvent] = []
        room = PageRoom(limit=len(result.hits), most_bytes=_MOST_BYTES)
        while hits := result.hits[len(events) : len(events) + room.further]:
            event_seqs = [hit.event_seq for hit in hits]
            scopes = sorted({result.scope(hit).scope_id for hit in hits})
            read_rows = await self.connection.fetch(sql("events.texts"), self.tenant, event_seqs, scopes)
            rows = {row["event_seq"]: row for row in read_rows}
            replaced: dict[int, asyncpg.Record | None] = {}
            if query.include_superseded:
                replaced = await successors(self.connection, self.tenant, event_seqs, query.masks)
            for hit in hits:
                if not room.take(rows[hit.event_seq]["payload"]):
                    return tuple(events)
                events.append(_found_event(hit, rows[hit.event_seq], replaced, result))
        return tuple(events)

    async def topics(self, found: Found, *, among: int, at_least: int, without: str | None) -> tuple[FoundTopic, ...]:
        """Return the leaf topics above hits, in the order of their best hits.

        Args:
            among: how many of the first hits count.
            at_least: how many of these a topic must hold.
            without: leave out topics that hold an event of this type; None: none is left out.
        """
        result = found.result
        below = _by_leaf(result, among)
        chosen = {
            leaf: hits
            for leaf, hits in below.items()
            if len(hits) >= at_least and (without is None or not _holds(result, hits[0], without))
        }
        placed = [(result.scope(hits[0]), (leaf,)) for leaf, hits in chosen.items()]
        topics = await self._topics.topics(self.connection, self.tenant, placed, hidden=result.snapshot.hidden)
        return tuple(
            FoundTopic(
                topic_id=topics[leaf]["topic_id"],
                label=topics[leaf]["label"],
                summary=topics[leaf]["summary"],
                keywords=tuple(topics[leaf]["keywords"]),
                event_seqs=tuple(hit.event_seq for hit in hits),
            )
            for leaf, hits in chosen.items()
            if topics[leaf]["label"] != NEUTRAL_LABEL
        )

    async def subjects(self, found: Found, *, among: int) -> tuple[FoundSubject, ...]:
        """Return the subjects that two or more leaves above hits share, in the order of their best hits.

        Args:
            among: how many of the first hits are looked at.
        """
        result = found.result
        below = _by_leaf(result, among)
        if len(below) < SHARED_BY:
            return ()
        placed = [(result.scope(hits[0]), (leaf,)) for leaf, hits in below.items()]
        words = await self._topics.found(self.connection, self.tenant, placed)
        subjects = await self._topics.subjects_of(self.connection, result.snapshot, placed, words)
        leaves: dict[bytes, list[bytes]] = {}
        for leaf, subject in subjects.places(list(below)).items():
            leaves.setdefault(subject, []).append(leaf)
        shared: list[FoundSubject] = []
        for subject, its_leaves in leaves.items():
            shown_topic = subjects.topics[subject].shown(result.snapshot.hidden)
            if shown_topic["label"] != NEUTRAL_LABEL:
                its_leaves.sort(key=list(below).index)
                shared.append(
                    FoundSubject(
                        label=shown_topic["label"],
                        latest=latest_of(shown_topic["summary"]),
                        event_seqs=tuple(hit.event_seq for leaf in its_leaves for hit in below[leaf]),
                        topic_ids=tuple(words[leaf].body["topic_id"] for leaf in its_leaves),
                    )
                )
        return tuple(shared)


def _by_leaf(result: SearchResult, among: int) -> dict[bytes, list[Hit]]:
    """Group the first `among` hits by the rendering of their leaf; hits in no tree are left out."""
    below: dict[bytes, list[Hit]] = {}
    for hit in result.hits[:among]:
        if result.is_indexed(hit):
            view = result.view(hit)
            below.setdefault(view.rendering(int(view.leaf[hit.doc])), []).append(hit)
    return below


def _found_event(
    hit: Hit, row: asyncpg.Record, replaced: Mapping[int, asyncpg.Record | None], result: SearchResult
) -> FoundEvent:
    """Join a hit with its event's row; `replaced` has the superseded events' successors by event_seq."""
    successor = replaced.get(hit.event_seq)
    return FoundEvent(
        event_seq=hit.event_seq,
        event_id=row["event_id"],
        scope_id=row["scope_id"],
        at=hit.timestamp,
        type=row["type"],
        context_id=row["context_id"],
        payload=orjson.loads(row["payload"]),
        score=hit.score,
        superseded=hit.event_seq in replaced,
        superseded_by=None if successor is None else successor["successor_seq"],
        change=result.change_of(hit),
        utc_offset=int(result.view(hit).utc_offset[hit.doc]),
        by_meaning=hit.event_seq in result.without_words,
    )


def _holds(result: SearchResult, hit: Hit, event_type: str) -> bool:
    """Tell whether the leaf of a hit holds an event of a type."""
    view = result.view(hit)
    if event_type not in view.types:
        return False
    inside = view.leaf == view.leaf[hit.doc]
    return bool((view.type[inside] == view.types.index(event_type)).any())
