"""Make the items of a prompt before a turn: recalled memory, the caller's history, recent items, the new input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from myria.db.clock import to_rfc3339
from myria.db.queries import sql
from myria.log.masks import Masks
from myria.log.payloads import searchable_text, speaker_of
from myria.notes.kinds import FACT_KINDS
from myria.notes.model import NOTE_TYPE
from myria.notes.recalling import Reads
from myria.notes.turns.facts import Fact, KnownFact, facts_in
from myria.notes.turns.items import (
    Json,
    answers_a_call,
    estimated_tokens,
    identity_of,
    may_recur,
    memory_pair,
    text_of,
    unpacked,
)
from myria.notes.turns.model import INPUT_TYPE, OUTPUT_TYPE, Session, recent_items, visible_scopes
from myria.notes.turns.ranking import best_facts, best_insights, facts_about, terms_of
from myria.search.found import EventFinder, FoundEvent
from myria.search.queries import EventNodesQuery
from myria.settings import TurnsSettings
from myria.text.passages import best_span, sought_in
from myria.text.restating import told_once

INSIGHTS = 5
"""Insights that are recalled before a turn."""

_LEAST_ITEMS = 6
"""Items of a session from which on it has insights."""

_TURNS_LOOKED_AT = 200
"""Newest turns in which it is counted how often a fact was stated."""

_QUESTION_CHARACTERS = 2_000
_CHUNK_CHARACTERS = 600
_FOUND_FOR_A_CHUNK = 4
"""Hits that are fetched for each piece shown, since several hits may have the same text."""

_TOPICS_FROM = 200
_TOPICS = 12
_QUOTED_ITEMS = 12
_QUOTED_CHARACTERS = 160


@dataclass(frozen=True, kw_only=True, slots=True)
class Before:
    """A turn that begins: the earlier items that the caller has, and the new ones (`current`)."""

    session: Session
    history: Sequence[Json]
    current: Sequence[Json]
    max_input_tok: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """What a host puts into its prompt. `compacted` tells whether a summary stands for some items."""

    items: tuple[Json, ...]
    fact_ids: tuple[str, ...]
    insight_ids: tuple[str, ...]
    tokens: int
    compacted: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _Recalled:
    """What was recalled for a turn; `recent` are items that the caller's history lacks."""

    facts: Sequence[KnownFact] = ()
    insights: Sequence[Json] = ()
    chunks: Sequence[Json] = ()
    recent: Sequence[Json] = ()
    topics: Sequence[str] = ()

    def pair(self, earlier: Sequence[str] = ()) -> list[Json]:
        """Return recalled memory as items of a prompt, with lines (`earlier`) that stand for items left out."""
        return memory_pair(
            [_fact_json(known.fact) for known in self.facts], self.insights, self.chunks, earlier=earlier
        )


class Preparing:
    """Prepares the turns of one process.

    Args:
        read: how events are found.
        settings: how much is recalled.
    """

    def __init__(self, read: Reads, settings: TurnsSettings) -> None:
        self._read = read
        self._settings = settings

    async def prepare(self, tenant: str, before: Before, *, now: int) -> Prepared:
        """Return the items of a turn's prompt; store nothing.

        Args:
            now: in microseconds since 1970 UTC: facts that have expired by then are left out.

        Raises:
            UnavailableError: retry.
        """
        masks = Masks.containing(before.session.participants)
        recalled = await self._read(tenant, masks, partial(self._recall, before, masks, now))
        items, compacted = self._compacted(before, recalled)
        return Prepared(
            items=tuple(items),
            fact_ids=tuple(known.fact.fact_id for known in recalled.facts),
            insight_ids=tuple(insight["id"] for insight in recalled.insights),
            tokens=estimated_tokens(items),
            compacted=compacted,
        )

    async def _recall(self, before: Before, masks: Masks, now: int, reader: EventFinder) -> _Recalled:
        """Read what a prompt may need: facts, insights, pieces of earlier turns, recent items and topics.

        Topics are only read where the prompt gets too long, since only its summary shows them.
        """
        session, settings, connection = before.session, self._settings, reader.connection
        scopes = await visible_scopes(connection, reader.tenant, session)
        if not scopes:
            return _Recalled()
        question = "\n".join(text_of(item) for item in before.current)[:_QUESTION_CHARACTERS].strip()
        terms = terms_of(question)
        live_facts = await facts_in(connection, reader.tenant, session.context_id, scopes, now=now)
        facts = best_facts(facts_about(live_facts, question), terms, now, settings.recall_facts_limit)
        recent = await recent_items(connection, reader.tenant, session, scopes, settings.recent_context_items)
        insights = await self._insights(reader, session, facts, terms, len(recent))
        caller_items = {identity_of(item) for item in (*before.history, *before.current)}
        recent = tuple(filter(may_recur, recent))
        recent_ids = [identity_of(item) for item in recent]
        shown_items = caller_items.union(recent_ids)
        chunks = await self._chunks(reader, session, masks, scopes=scopes, question=question, shown=shown_items)
        topics: tuple[str, ...] = ()
        if self._threshold(before) <= estimated_tokens([*before.history, *recent, *before.current]):
            topics = await self._topics(reader, session, masks)
        return _Recalled(
            facts=facts,
            insights=insights,
            chunks=chunks,
            recent=[item for item, item_id in zip(recent, recent_ids, strict=True) if item_id not in caller_items],
            topics=topics,
        )

    async def _insights(
        self, reader: EventFinder, session: Session, facts: Sequence[KnownFact], asked: frozenset[str], items: int
    ) -> list[Json]:
        if not facts or items < min(_LEAST_ITEMS, self._settings.recent_context_items):
            return []
        rows = await reader.connection.fetch(
            sql("turns.times_said"),
            reader.tenant,
            session.owner,
            session.context_id,
            _TURNS_LOOKED_AT,
            [known.note_id for known in facts],
        )
        return best_insights(facts, {row["note_id"]: row["times"] for row in rows}, asked, INSIGHTS)

    async def _chunks(
        self,
        reader: EventFinder,
        session: Session,
        masks: Masks,
        *,
        scopes: Sequence[int],
        question: str,
        shown: set[str],
    ) -> tuple[Json, ...]:
        """Return pieces of earlier turns that a question finds, without items that the prompt has anyway.

        Notes that other APIs kept in this context are found too, where the participants may see them: the context
        belongs to this session alone.

        Args:
            shown: the identities of the prompt's items.
        """
        limit = self._settings.search_limit
        if not question or not limit:
            return ()
        query = EventNodesQuery(
            masks=masks,
            query=question,
            context_id=session.context_id,
            limit=_FOUND_FOR_A_CHUNK * limit + len(shown),
        )
        found = await reader.find(query)
        hits = told_once(
            [hit for hit in found.events if _is_piece(hit, scopes) and _is_new(hit, shown)],
            said=lambda hit: (speaker_of(hit.payload), searchable_text(hit.payload)),
            age=lambda hit: (hit.at, hit.event_seq),
        )
        sought = sought_in(question)
        return tuple(_chunk_json(hit, session, sought, alike) for hit, alike in hits[:limit])

    async def _topics(self, reader: EventFinder, session: Session, masks: Masks) -> tuple[str, ...]:
        """Return the topics of a session's newest turns, as "label: summary", from the active snapshot."""
        query = EventNodesQuery(masks=masks, context_id=session.context_id, order="newest", limit=_TOPICS_FROM)
        found = await reader.find(query)
        topics = await reader.topics(found, among=_TOPICS_FROM, at_least=1, without=NOTE_TYPE)
        return tuple(f"{topic.label}: {topic.summary}" for topic in topics[:_TOPICS])

    def _threshold(self, before: Before) -> int:
        return int(self._settings.compact_threshold * before.max_input_tok)

    def _compacted(self, before: Before, recalled: _Recalled) -> tuple[list[Json], bool]:
        """Return the items in the contract's order, and whether they were compacted.

        Compacting replaces the oldest items by a summary, so that the estimate stays below the threshold; history is
        cut only where recent items alone do not make enough room.
        """
        pair = recalled.pair()
        recent = list(recalled.recent)
        history = list(before.history)
        threshold = self._threshold(before)
        uncut = [*pair, *history, *recent, *before.current]
        if estimated_tokens(uncut) < threshold:
            return uncut, False
        room = threshold - estimated_tokens([*pair, *before.current])
        kept_recent, left_out = _newest_within(recent, room - _reserve(room))
        kept_history: list[Json] = history
        history_left_out: list[Json] = []
        if left_out or estimated_tokens([*history, *kept_recent]) >= room - _reserve(room):
            kept_history, history_left_out = _newest_within(
                history, room - _reserve(room) - estimated_tokens(kept_recent)
            )
        left_out = [*history_left_out, *left_out]
        pair = _with_summary(recalled, left_out, _reserve(room))
        return [*pair, *kept_history, *kept_recent, *before.current], bool(left_out)


def _reserve(room: int) -> int:
    """Return how many of the tokens for earlier items are set aside for their summary: a quarter."""
    return max(0, room // 4)


def _newest_within(items: Sequence[Json], room: int) -> tuple[list[Json], list[Json]]:
    """Divide items into the newest that cost at most `room` tokens, and those before them.

    The newest never begin with a tool's answer, whose call would be left out.
    """
    begin, cost = len(items), 1
    while begin and cost + estimated_tokens([items[begin - 1]]) + 1 <= room:
        begin -= 1
        cost += estimated_tokens([items[begin]]) + 1
    while begin and begin < len(items) and answers_a_call(items[begin]):
        begin += 1
    return list(items[begin:]), list(items[:begin])


def _with_summary(recalled: _Recalled, left_out: Sequence[Json], room: int) -> list[Json]:
    """Return recalled memory with a summary of items that are left out: their topics, else their beginnings.

    The summary stands in the block of data, since others wrote it. It is shortened to cost at most `room` tokens, and
    left out where even its first line costs more.
    """
    pair = recalled.pair()
    if not left_out:
        return pair
    lines = list(recalled.topics) or [
        f"{item.get('role') or 'tool'}: {' '.join(text_of(item).split())[:_QUOTED_CHARACTERS]}"
        for item in left_out[-_QUOTED_ITEMS:]
        if text_of(item).strip()
    ]
    first_line = f"{len(left_out)} earlier items are left out"
    for count in range(len(lines), -1, -1):
        with_summary = recalled.pair([first_line, *lines[:count]])
        if estimated_tokens(with_summary) - estimated_tokens(pair) <= room:
            return with_summary
    return pair


def _is_piece(hit: FoundEvent, scopes: Sequence[int]) -> bool:
    """Tell whether a hit is an item of this session, or another API's note in its context, but no fact."""
    if hit.type in (INPUT_TYPE, OUTPUT_TYPE):
        return hit.scope_id in scopes and "item" in hit.payload
    note = hit.payload.get("note") if hit.type == NOTE_TYPE else None
    return not (isinstance(note, dict) and note.get("kind") in FACT_KINDS)


def _is_new(hit: FoundEvent, shown: set[str]) -> bool:
    return hit.type not in (INPUT_TYPE, OUTPUT_TYPE) or identity_of(unpacked(hit.payload)) not in shown


_IN_LOWER_CASE: Final = frozenset({"user_name", "user_preference", "user_like", "today_task", "weekly_task"})
"""Facts whose values memory-tools shows in lower case; how they were written stands beside, as `text`."""


def _fact_json(fact: Fact) -> Json:
    value = fact.value.lower() if fact.fact_id in _IN_LOWER_CASE else fact.value
    return {
        "id": fact.fact_id,
        "tier": fact.tier,
        "key": fact.key,
        "value": value,
        **({} if value == fact.value else {"text": fact.value}),
        "confidence": f"{fact.confidence:.2f}",
    }


def _chunk_json(hit: FoundEvent, session: Session, sought: frozenset[str], alike: int) -> dict[str, Any]:
    """Return a hit in the contract's form: its best passage, and where in the session's layout its bytes are."""
    text = searchable_text(hit.payload)
    start, end = best_span(text, sought, _CHUNK_CHARACTERS)
    bytes_before, bytes_shown = (len(part.encode("utf-8", "surrogatepass")) for part in (text[:start], text[start:end]))
    day = to_rfc3339(hit.at)[:10].replace("-", "/")
    return {
        "path": f"/memory/{session.session_id}/events/raw/{day}/{hit.payload.get('item_id', hit.event_id)}",
        "start_bytes": bytes_before,
        "end_bytes": bytes_before + bytes_shown,
        "text": text[start:end],
        **({"alike": alike} if alike else {}),
    }
