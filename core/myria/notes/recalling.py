"""Recalling: one masked ranking over notes, raw events and topics, filtered by what notes are, within a token bound.

The masked retrieval finds and ranks, a batch at a time; of a batch's hits, versions that are no longer current and what
was withdrawn are left out by one look-up, importance and recency move the rest softly, and the best are written within
the budget. All of it happens in one transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, TypeVar

import asyncpg

from myria.db.clock import to_datetime, to_microseconds
from myria.db.queries import sql
from myria.errors import CursorInvalid
from myria.index.block import name_terms
from myria.log.masks import Masks
from myria.log.payloads import speaker_of, whole_text
from myria.notes.current import ComparedNote, newest_above
from myria.notes.drafting import NoteText
from myria.notes.expiry import DAY_US, Lasting
from myria.notes.fragments import Fragment, Key
from myria.notes.kinds import importance_now, often, policies, tier, utility
from myria.notes.model import NOTE_TYPE, note_of
from myria.notes.questions import RecallQuery
from myria.search.cursors import Cursor
from myria.search.found import EventFinder, Found, FoundEvent, FoundSubject
from myria.search.handles import EVENT_PREFIX, NOTE_PREFIX
from myria.settings import RecallSettings
from myria.text import is_stopword, terms
from myria.text.announcing import holds_later
from myria.text.restating import told_once

T = TypeVar("T")


class Reads(Protocol):
    """Runs what finds events in one transaction, as `Retrieval.read` does."""

    def __call__(self, tenant: str, masks: Masks, work: Callable[[EventFinder], Awaitable[T]]) -> Awaitable[T]: ...


_BATCH = 32
"""Hits that are ranked together. Cursors name a place within a batch, so a change of this number breaks them."""

_BATCH_OF_NOTES = 200
"""Hits that are ranked together where only notes can match, since a filter of notes drops many of them."""

_MOST_BATCHES = 20
"""Batches of one page: one that a filter thins out further is short, and its cursor goes on."""

RESOLVED_IMPORTANCE = 0.5
"""The most that an error counts for which a link says is resolved (Memento's contract)."""

_MOST_CONTRADICTIONS = 3
"""Contradicting notes that a memory names."""

_LEAST_CONFIDENCE = 0.1

_CONTEXT_TERMS = 6
"""Words of the asker's context that a memory need not have more of."""

_CONTEXT_LOOKED_AT = 2_000
"""Characters of a memory that are compared with the asker's context."""

_PER_MILLE = 1_000
_TOPICS_AMONG = 12
"""First hits of a question whose topics are looked at."""

_TOPIC_HITS = 2
"""Hits of a batch below a topic, from which on it is worth a line."""


_BEFORE_ALL: Key = (-(1 << 62), 0, 0, 0)
"""A place before every memory of a batch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recalled:
    """A page of memories, best first.

    `cursor` continues it, None at its end or where none was asked for. `search_path` says which lanes found how many.
    `hints` are signals of Memento's contract with what to do: `no_results`, `stale_results`, `consider_context`.
    `subjects` are what several of the memories are about, on a first page.
    """

    fragments: tuple[Fragment, ...]
    cursor: str | None
    search_path: str
    hints: tuple[Mapping[str, str], ...]
    subjects: tuple[FoundSubject, ...] = ()

    def told_once(self) -> Recalled:
        """Return the page without memories that only repeat another one's text: the newest stands for all of them."""
        told = told_once(
            self.fragments,
            said=lambda memory: ((memory.speaker, memory.topic_id, memory.superseded), memory.text),
            age=lambda memory: (memory.at, memory.event_seq),
        )
        fragments = tuple(replace(memory, alike=alike) if alike else memory for memory, alike in told)
        return replace(self, fragments=fragments)


@dataclass(frozen=True, kw_only=True, slots=True)
class _PageStart:
    """Where a page begins: its batch (None: the first), the key it begins after there, and the first page's `now`.

    As a cursor it is nine numbers: three of the batch, `now`, `is_first` and the four of `after`.
    """

    now: int
    batch: Cursor | None = None
    after: Key = field(default=_BEFORE_ALL)
    is_first: bool = True

    @classmethod
    def of(cls, cursor: Cursor) -> _PageStart:
        if len(cursor.after) != _CURSOR_NUMBERS:
            raise CursorInvalid("the cursor was not made for this query; ask again without it", field="cursor")
        score, timestamp, event_seq, now, is_first, *after = cursor.after
        batch = replace(cursor, after=(score, timestamp, event_seq))
        first, second, third, fourth = after
        return cls(now=now, batch=batch, after=(first, second, third, fourth), is_first=bool(is_first))

    def cursor(self, batch: Cursor) -> Cursor:
        """Return the cursor that continues at this place in a batch."""
        return replace(batch, after=(*batch.after, self.now, int(self.is_first), *self.after))


_CURSOR_NUMBERS = 9


class Recall:
    """Recalls from one process.

    Args:
        read: how events are found.
        settings: weights, and when memories are called old.
        has_vectors: whether a model of embeddings is set.
    """

    def __init__(self, read: Reads, settings: RecallSettings | None = None, *, has_vectors: bool = False) -> None:
        self._has_vectors = has_vectors
        self._read = read
        self._settings = settings or RecallSettings()

    async def find(self, tenant: str, query: RecallQuery) -> tuple[Fragment, ...]:
        """Return the memories of a page; see `page`."""
        return (await self.page(tenant, query)).fragments

    async def page(self, tenant: str, query: RecallQuery) -> Recalled:
        """Return a page of what matches, best first, before any budget.

        Pages of one query are disjoint and miss nothing: they see the memory as the first one saw it. What was
        withdrawn since is left out of later ones.

        Raises:
            CursorInvalid, CursorExpired: ask again without the cursor.
            UnavailableError: retry.
        """
        return await self._read(tenant, query.masks, partial(self._page, query))

    async def saying(
        self, tenant: str, masks: Masks, *, now: int, text: str | None, topic: str | None, most: int
    ) -> list[str]:
        """Return the ids of the notes of a topic, or whose own text, topic and keywords have all words of a text.

        Notes that recall finds only because such words were said near them are left out.

        Args:
            now: in microseconds since 1970 UTC.
            most: how many recalled memories are checked.
        """
        fragments = await self.find(tenant, RecallQuery(masks=masks, now=now, text=text, topic=topic, page_size=most))
        text_terms = terms(text or "")
        words = {term for term in text_terms if not is_stopword(term)} or set(text_terms)
        return [
            note.note_id
            for note in fragments
            if note.note_id is not None and (text is None or (words and note.says(words)))
        ]

    async def _page(self, query: RecallQuery, reader: EventFinder) -> Recalled:
        """Gather batches until the page is full, the hits end or `_MOST_BATCHES` are read; see `page`."""
        start = _PageStart(now=query.now)
        if query.cursor is not None:
            start = _PageStart.of(reader.cursor(query.cursor, query.digest(reader.tenant)))
        query_then = replace(query, now=start.now)
        question = query_then.question(_BATCH_OF_NOTES if query_then.wants_notes else _BATCH)
        fragments: list[Fragment] = []
        next_cursor: Cursor | None = None
        subjects: tuple[FoundSubject, ...] = ()
        for _ in range(_MOST_BATCHES):
            found = await reader.find(question, cursor=start.batch, at=query.now)
            batch = await self._fragments(query_then, reader, found, is_first=start.is_first)
            if start.is_first and query.cursor is None and self._settings.topics and _may_hold_topics(query_then):
                subjects = await reader.subjects(found, among=_TOPICS_AMONG)
            remaining = [fragment for fragment in batch if fragment.key > start.after]
            room = query_then.page_size - len(fragments)
            fragments += remaining[:room]
            if len(remaining) > room:
                next_cursor = replace(start, after=fragments[-1].key if room else start.after).cursor(found.here)
                break
            next_cursor = None
            # Where only hints are looked for, hits come by score; behind one of score 0 none matches any more.
            if found.following is None or (question.query is None and query_then.hints and not found.events[-1].score):
                break
            start = _PageStart(now=start.now, batch=found.following, is_first=False)
            next_cursor = start.cursor(found.following)
            if len(fragments) >= query_then.page_size:
                break
        if query.as_of is None:
            fragments = await self._with_contradictions(query, reader, fragments)
        return Recalled(
            fragments=tuple(_newest_above(query, fragments)),
            cursor=None
            if next_cursor is None or not query.goes_on
            else reader.cursor_text(next_cursor, query.digest(reader.tenant)),
            search_path=_search_path(query_then, fragments, has_vectors=self._has_vectors),
            hints=tuple(_hints(query_then, fragments, has_vectors=self._has_vectors)),
            subjects=subjects,
        )

    async def _with_contradictions(
        self, query: RecallQuery, reader: EventFinder, fragments: list[Fragment]
    ) -> list[Fragment]:
        """Return memories with the handles of the notes that contradict them, of those that the reader may see."""
        note_ids = [fragment.note_id for fragment in fragments if fragment.note_id is not None]
        if not note_ids:
            return fragments
        rows = await reader.connection.fetch(
            sql("links.contradictions"), reader.tenant, note_ids, query.session_id, to_datetime(query.now)
        )
        contradicting: dict[str, list[str]] = {}
        for row in rows:
            if query.masks.sees(row["participants"]):
                contradicting.setdefault(row["note_id"], []).append(NOTE_PREFIX + reader.handles.of(row["first_seq"]))
        return [
            replace(fragment, contradicted_by=tuple(contradicting[fragment.note_id][:_MOST_CONTRADICTIONS]))
            if fragment.note_id in contradicting
            else fragment
            for fragment in fragments
        ]

    async def _fragments(
        self, query: RecallQuery, reader: EventFinder, found: Found, *, is_first: bool
    ) -> list[Fragment]:
        """Return the memories of a batch of hits, best first, with topics above them on the first batch.

        Args:
            is_first: whether this is the query's first batch.
        """
        events = found.events
        if query.words is None and query.hints:
            events = tuple(event for event in events if event.score)
        if not events:
            return []
        # A raw event that is found is not withdrawn, but perhaps superseded; whether it was so at `as_of` already must
        # be looked up.
        looked_up = [
            event for event in events if event.type == NOTE_TYPE or (event.superseded and query.as_of is not None)
        ]
        rows: dict[int, asyncpg.Record] = {}
        if looked_up:
            fetched = await reader.connection.fetch(
                sql("notes.of_events"),
                reader.tenant,
                [event.event_seq for event in looked_up],
                [_note_id(event) for event in looked_up],
                [event.scope_id for event in looked_up],
                None if query.as_of is None else to_datetime(query.as_of),
            )
            rows = {row["event_seq"]: row for row in fetched}
        context: frozenset[str] = frozenset()
        if query.context and self._settings.context:
            context = _context_terms(query.context)
        fragments = [
            fragment
            for event in events
            if (fragment := self._fragment(query, event, rows.get(event.event_seq), reader, context)) is not None
        ]
        if is_first and self._settings.topics and _may_hold_topics(query):
            fragments += await self._topics(query, reader, found, fragments)
        return sorted(fragments, key=lambda fragment: fragment.key)

    def _fragment(
        self,
        query: RecallQuery,
        event: FoundEvent,
        row: asyncpg.Record | None,
        reader: EventFinder,
        context: frozenset[str],
    ) -> Fragment | None:
        """Return a hit as a memory; None for a hit that is withdrawn or does not match the query's filters.

        Args:
            row: what `notes.of_events` says of the hit, where it was looked up.
            context: words of what the asker is busy with.
        """
        is_superseded = event.superseded if row is None else row["reason"] == "superseded"
        if row is not None and row["reason"] not in (None, "superseded", "restored"):
            return None
        if is_superseded and not query.include_superseded:
            return None
        settings = self._settings
        text = whole_text(event.payload)
        gain = settings.recency * 0.5 ** (max(0, query.now - event.at) / (DAY_US * settings.recency_days))
        context_share = _context_share(context, text) if context else 0.0
        score = _raised(event.score, gain + settings.context * context_share)
        successor = event.superseded_by if is_superseded else None
        fragment = Fragment(
            note_id=None,
            event_id=event.event_id,
            handle=EVENT_PREFIX + reader.handles.of(event.event_seq),
            text=text,
            speaker=speaker_of(event.payload),
            at=event.at,
            score=score,
            key=_key(query, score, event.at, event.event_seq),
            lane=_lane(query, event),
            age_days=_age_days(query, event.at),
            fits=context_share > 0,
            superseded=is_superseded,
            # A note may have replaced this event; the handle of the note's event stands for that note.
            superseded_by=None if successor is None else EVENT_PREFIX + reader.handles.of(successor),
            change=event.change,
            utc_offset=event.utc_offset,
            holds_from=holds_later(
                text,
                at=event.at,
                utc_offset=event.utc_offset,
                now=query.now if query.as_of is None else query.as_of,
            ),
        )
        if event.type == NOTE_TYPE:
            return None if row is None else self._note_fragment(query, event, row, fragment, reader)
        return None if query.wants_notes else fragment

    def _note_fragment(
        self, query: RecallQuery, event: FoundEvent, row: asyncpg.Record, fragment: Fragment, reader: EventFinder
    ) -> Fragment | None:
        """Return the memory of a note's version, from `fragment`, its memory as a raw event.

        None for a version that is no longer current (unless superseded ones are asked for), has expired, or does not
        match the query's filters.
        """
        note = _note(event)
        if row["note_id"] is None or note is None or not (row["is_current"] or event.superseded):
            return None
        replaced_by = event.payload["note"].get("replaced_by")
        was_replaced = row["reason"] == "superseded" and replaced_by is not None
        if not _is_wanted(query, note, row) or (not was_replaced and Lasting.of(row).has_expired(query.now)):
            return None
        settings = self._settings
        as_of = query.now if query.as_of is None else query.as_of
        age, unchanged = (max(0, as_of - since) / DAY_US for since in (to_microseconds(row["created_at"]), event.at))
        # Showing a page counts as a use of its notes. A query with further pages ignores uses, else its next page would
        # be ordered in another way.
        counts_use = row["used_at"] is not None and query.as_of is None and not query.goes_on
        idle = max(0, as_of - max(event.at, to_microseconds(row["used_at"]))) / DAY_US if counts_use else unchanged
        is_resolved = row["resolved"] is True and query.as_of is None
        base_importance = min(note.importance, RESOLVED_IMPORTANCE) if is_resolved else note.importance
        importance = importance_now(note.kind, base_importance, anchor=note.anchor, idle_days=idle)
        keyword_share = _share_of_keywords(query.keywords, note.keywords)
        gain = settings.importance * importance + settings.keywords * keyword_share
        if counts_use:
            gain += settings.use * importance * often(row["uses"])
        if row["worth"] is not None:
            gain += settings.quality * (2 * row["worth"] - 1)
        score = fragment.score + _raised(event.score, gain) - event.score
        uses = row["uses"] or 0
        confidence = max(_LEAST_CONFIDENCE, min(1.0, utility(importance, uses, row["worth"])))
        stale_after = settings.stale_after(note.kind, policies()[note.kind].stale_days)
        return replace(
            fragment,
            note_id=row["note_id"],
            handle=NOTE_PREFIX + reader.handles.of(row["first_seq"]),
            score=score,
            key=_key(query, score, event.at, event.event_seq),
            lane="keywords" if keyword_share else fragment.lane,
            kind=note.kind,
            replaced_by=replaced_by,
            topic=note.topic,
            keywords=note.keywords,
            importance=round(importance, 3),
            tier=tier(note.kind, note.importance, anchor=note.anchor, age_days=age, idle_days=idle),
            details=note.details if query.whole_details else note.details.brief(),
            resolved=is_resolved,
            uses=uses,
            confidence=round(confidence, 2),
            matched=tuple(keyword for keyword in note.keywords if keyword.casefold() in _query_keywords(query)),
            in_case=query.details.case_id is not None,
            stale_days=int(unchanged) if stale_after and unchanged >= stale_after and not note.anchor else None,
        )

    async def _topics(
        self, query: RecallQuery, reader: EventFinder, found: Found, fragments: Sequence[Fragment]
    ) -> list[Fragment]:
        """Return as memories the topics of several hits whose label or keywords have words of the question.

        Each stands right behind the best of its events, with a share of that one's score.
        """
        fragment_of_event = {fragment.key[2]: fragment for fragment in fragments if fragment.note_id is None}
        topic_fragments = []
        question_terms: set[str] = set()
        for topic in await reader.topics(found, among=_TOPICS_AMONG, at_least=_TOPIC_HITS, without=NOTE_TYPE):
            topic_hits = [
                fragment_of_event[event_seq] for event_seq in topic.event_seqs if event_seq in fragment_of_event
            ]
            if len(topic_hits) < _TOPIC_HITS:
                continue
            question_terms = question_terms or _terms_of_question(query)
            shared = question_terms.intersection(name_terms(" ".join((topic.label, *topic.keywords))))
            if not shared:
                continue
            best_hit = min(topic_hits, key=lambda fragment: fragment.key)
            score = int(best_hit.score * self._settings.topics * len(shared) / len(question_terms))
            if score:
                topic_fragments.append(
                    Fragment(
                        note_id=None,
                        event_id=None,
                        topic_id=topic.topic_id,
                        handle=topic.topic_id,
                        text=f"{topic.label}: {topic.summary}",
                        speaker=None,
                        at=best_hit.at,
                        score=score,
                        key=(-score, -best_hit.at, best_hit.key[2], 1),
                        lane="topics",
                    )
                )
        return topic_fragments


def _newest_above(query: RecallQuery, fragments: list[Fragment]) -> list[Fragment]:
    """Move each note below newer notes of the page that may replace what it says, and mark it as older."""
    if not query.is_ranked:
        return fragments
    order, marks = newest_above(
        [_compared_note(fragment) for fragment in fragments],
        query.words or "",
        hints=query.hints,
        now=query.now if query.as_of is None else query.as_of,
        utc_offset=query.utc_offset,
    )
    return [replace(fragments[place], change=marks[place]) if place in marks else fragments[place] for place in order]


def _compared_note(fragment: Fragment) -> ComparedNote | None:
    """Return a memory as `newest_above` compares it; None for a raw event, a topic and what is superseded."""
    if fragment.note_id is None or fragment.superseded:
        return None
    return ComparedNote(
        text=fragment.text,
        at=fragment.at,
        number=fragment.event_seq,
        utc_offset=fragment.utc_offset,
        event_id=fragment.event_id,
        replaced_by=fragment.replaced_by,
    )


def _terms_of_question(query: RecallQuery) -> set[str]:
    return {term for term in terms(" ".join(filter(None, (query.words, *query.hints)))) if not is_stopword(term)}


def _context_share(context: frozenset[str], text: str) -> float:
    """Return the share (0..1) of the context's words that a text has; six of them count as all."""
    shared = context.intersection(terms(text[:_CONTEXT_LOOKED_AT]))
    return min(1.0, len(shared) / min(len(context), _CONTEXT_TERMS))


def _context_terms(context: str) -> frozenset[str]:
    return frozenset(term for term in terms(context) if not is_stopword(term))


def _age_days(query: RecallQuery, at: int) -> int:
    """Return how many whole days before the query's moment a time in microseconds is."""
    return max(0, (query.now if query.as_of is None else query.as_of) - at) // DAY_US


def _query_keywords(query: RecallQuery) -> set[str]:
    return {keyword.strip().casefold() for keyword in query.keywords}


def _note_id(event: FoundEvent) -> str | None:
    """Return the id of the note of which an event says it is a version; None for other events."""
    about = event.payload.get("note") if event.type == NOTE_TYPE else None
    note_id = about.get("id") if isinstance(about, dict) else None
    return note_id if isinstance(note_id, str) else None


def _note(event: FoundEvent) -> NoteText | None:
    """Return what a note's version says; None for an event of the type whose payload has not the form of a note."""
    try:
        note = note_of(event.payload, context_id=event.context_id)
    except (KeyError, TypeError, AttributeError):
        return None
    is_sound = isinstance(note.importance, int | float) and note.kind in policies() and isinstance(note.topic, str)
    return note if is_sound else None


def _is_wanted(query: RecallQuery, note: NoteText, row: asyncpg.Record) -> bool:
    """Tell whether a note passes all filters of a query."""
    if (row["session"] or note.lifetime == "session") and note.session_id != query.session_id:
        return False
    if (query.kind is not None and note.kind != query.kind) or (query.kinds and note.kind not in query.kinds):
        return False
    if row["note_id"] in query.without:
        return False
    if query.affects and (note.details.affect or "").casefold() not in map(str.casefold, query.affects):
        return False
    if query.anchor not in (None, note.anchor) or not note.details.answers(query.details):
        return False
    if query.topic is not None and note.topic.casefold() != query.topic.casefold():
        return False
    return query.min_importance is None or note.importance >= query.min_importance


def _may_hold_topics(query: RecallQuery) -> bool:
    """Tell whether topics can answer a query: they tell the present state, of all times, and are no notes."""
    is_bounded = query.since is not None or query.until is not None or query.as_of is not None
    return query.is_ranked and not query.wants_notes and not is_bounded and not query.include_superseded


def _key(query: RecallQuery, score: int, at: int, event_seq: int) -> Key:
    return (-score, -at, event_seq, 0) if query.is_ranked else (-at, -event_seq, event_seq, 0)


def _share_of_keywords(query_keywords: Sequence[str], note_keywords: Sequence[str]) -> float:
    """Return the share (0..1) of the keywords asked for that a note has, in either case of letters."""
    if not query_keywords:
        return 0.0
    in_lower_case = {keyword.casefold() for keyword in note_keywords}
    return sum(keyword.strip().casefold() in in_lower_case for keyword in query_keywords) / len(query_keywords)


def _raised(score: int, share: float) -> int:
    """Return a score raised by a share of itself, rounded to whole per mille; a negative share lowers it."""
    return score * (_PER_MILLE + round(_PER_MILLE * share)) // _PER_MILLE


def _lane(query: RecallQuery, event: FoundEvent) -> str:
    if not query.is_ranked:
        return "recent"
    return "vectors" if event.by_meaning else "words"


def _search_path(query: RecallQuery, fragments: Sequence[Fragment], *, has_vectors: bool) -> str:
    """Return how many memories each lane found, and of a ranked query also `vectors:0` or `vectors:off`."""
    counts = Counter(fragment.lane for fragment in fragments)
    lanes = [f"{lane}:{counts[lane]}" for lane in ("keywords", "words", "vectors", "topics", "recent") if counts[lane]]
    if query.is_ranked:
        lanes = lanes or ["words:0"]
        lanes += [] if counts["vectors"] else ["vectors:0" if has_vectors else "vectors:off"]
    return " → ".join(lanes) or "recent:0"


def _hints(query: RecallQuery, fragments: Sequence[Fragment], *, has_vectors: bool) -> list[Mapping[str, str]]:
    hints: list[Mapping[str, str]] = []
    if query.threshold is not None and not has_vectors:
        suggestion = (
            "threshold bounds the likeness of vectors, which are off here (embeddings.model): words alone found this"
        )
        hints.append({"signal": "vectors_off", "suggestion": suggestion, "trigger": "recall"})
    if query.without and query.cursor is None:
        suggestion = f"what context showed this session is left out ({len(query.without)}); excludeSeen: false shows it"
        hints.append({"signal": "seen_excluded", "suggestion": suggestion, "trigger": "recall"})
    if not fragments and query.cursor is None:
        suggestion = "ask in other words, or with fewer filters"
        hints.append({"signal": "no_results", "suggestion": suggestion, "trigger": "recall"})
    stale = sum(fragment.stale_days is not None for fragment in fragments)
    if fragments and 2 * stale > len(fragments):
        suggestion = "most of these are old; check before you rely on them"
        hints.append({"signal": "stale_results", "suggestion": suggestion, "trigger": "amend"})
    if not query.is_ranked:
        suggestion = "nothing was asked for: these are the most recent"
        hints.append({"signal": "consider_context", "suggestion": suggestion, "trigger": "context"})
    return hints
