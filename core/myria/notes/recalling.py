"""Recalling: one masked ranking over notes and raw events, filtered by what notes are, within a bound of tokens.

The masked retrieval finds and ranks; of its hits, versions that are no longer current and what was withdrawn are left
out by one look-up, importance and recency move the rest softly, and the best are written within the budget.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg
import orjson

from myria.contract.fields import parse_timestamp
from myria.contract.limits import MAX_LIMIT
from myria.contract.queries import EventNodesQuery
from myria.events import searchable_text, speaker_of
from myria.handles import EVENT_PREFIX, NOTE_PREFIX, Handles
from myria.masks import Masks
from myria.notes.expiry import Lasting
from myria.notes.kinds import Tier, importance_now, tier
from myria.notes.lines import MemoryLine, MemoryText, memory_text
from myria.notes.model import NOTE_TYPE
from myria.store.clock import to_microseconds, to_rfc3339
from myria.store.database import Database
from myria.store.queries import sql
from myria.tokens import TokenCounter

Json = dict[str, Any]
Ask = Callable[[str, EventNodesQuery], Awaitable[Json]]
"""Answers a query of a tenant, as `Retrieval.query_event_nodes` does."""

_HITS = 60
"""Hits of a question that no filter of notes thins out: more than any budget holds."""

_DAY_US = 86_400 * 10**6
_PER_MILLE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """How much importance and recency move a hit, as shares of its score; recency halves with each `recency_days`."""

    importance: float = 0.15
    recency: float = 0.1
    recency_days: float = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallQuery:
    """What is to be recalled, and by whom (`masks`).

    `text`, `keywords` and `topic` are looked for; without any of them the most recent comes first. `topic`, `kind` and
    `min_importance` also filter, so they leave notes alone. `since` and `until` are microseconds since 1970 UTC, as is
    `now`, by which notes are old. Notes of a session are recalled where `session_id` names it.
    """

    masks: Masks
    now: int
    text: str | None = None
    keywords: tuple[str, ...] = ()
    topic: str | None = None
    kind: str | None = None
    min_importance: float | None = None
    since: int | None = None
    until: int | None = None
    session_id: str | None = None

    @property
    def words(self) -> str | None:
        """What is looked for, as one question."""
        return " ".join(filter(None, (self.text, *self.keywords, self.topic))) or None

    @property
    def wants_notes(self) -> bool:
        """Whether only notes can match."""
        return self.kind is not None or self.topic is not None or self.min_importance is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """One memory that was recalled: a note, or a raw event, of which kind, topic, importance and tier are None.

    `at` is in microseconds since 1970 UTC; `score` is that of the ranking, moved.
    """

    note_id: str | None
    event_id: str
    handle: str
    text: str
    speaker: str | None
    at: int
    score: int
    kind: str | None = None
    topic: str | None = None
    keywords: tuple[str, ...] = ()
    importance: float | None = None
    tier: Tier | None = None

    def to_json(self) -> Json:
        """Return it as an answer's structured content."""
        shown: Json = {"id": self.note_id or self.event_id, "content": self.text, "handle": self.handle}
        if self.speaker is not None:
            shown["speaker"] = self.speaker
        shown["created_at"] = to_rfc3339(self.at)
        if self.kind is not None:
            shown |= {"type": self.kind, "topic": self.topic, "keywords": list(self.keywords)}
            shown |= {"importance": self.importance, "ttl_tier": self.tier}
        return shown

    @property
    def line(self) -> MemoryLine:
        """It as a line of text."""
        return MemoryLine(date=to_rfc3339(self.at)[:10], speaker=self.speaker, text=self.text, handle=self.handle)


class Recall:
    """Recalls from one process.

    Args:
        database: where notes are looked up.
        ask: how the masked retrieval is asked.
        counter: counts tokens.
    """

    def __init__(self, database: Database, ask: Ask, counter: TokenCounter, weights: Weights | None = None) -> None:
        self._database = database
        self._ask = ask
        self._counter = counter
        self._weights = weights or Weights()
        self._secret: bytes | None = None

    async def find(self, tenant: str, query: RecallQuery) -> tuple[Fragment, ...]:
        """Return what matches, best first: at most 200, before any budget."""
        answer = await self._ask(
            tenant,
            EventNodesQuery(
                masks=query.masks,
                query=query.words,
                types=(NOTE_TYPE,) if query.wants_notes else (),
                since=query.since,
                until=query.until,
                limit=MAX_LIMIT if query.wants_notes else _HITS,
                order="newest" if query.words is None else "relevance",
                now=query.now,
            ),
        )
        nodes = {node["event_seq"]: node for node in _events(answer["root"])}
        async with self._database.read(tenant) as connection:
            rows = await connection.fetch(sql("notes.of_events"), tenant, list(nodes))
            if self._secret is None:
                self._secret = await connection.fetchval(sql("retrieval.cursor_secret"))
        handles = Handles(self._secret or b"", tenant)
        found = [
            self._fragment(query, nodes[row["event_seq"]], row, handles) for row in rows if _counts(query, nodes, row)
        ]
        if query.words is None:
            return tuple(sorted(found, key=lambda fragment: -fragment.at))
        return tuple(sorted(found, key=lambda fragment: (-fragment.score, -fragment.at, fragment.event_id)))

    def as_text(self, fragments: Sequence[Fragment], budget: int) -> MemoryText:
        """Return memories as lines, whose text costs at most `budget` tokens."""
        return memory_text([fragment.line for fragment in fragments], self._counter, budget)

    def as_json(self, fragments: Sequence[Fragment], budget: int) -> list[Json]:
        """Return the first memories as JSON that costs at most `budget` tokens as it is sent."""
        shown = [fragment.to_json() for fragment in fragments]
        fitting, beyond = 0, len(shown) + 1
        while fitting + 1 < beyond:
            middle = (fitting + beyond) // 2
            if self._counter.count(orjson.dumps(shown[:middle]).decode()) <= budget:
                fitting = middle
            else:
                beyond = middle
        return shown[:fitting]

    def count(self, text: str) -> int:
        """Return how many tokens a text costs, or a bound that is not below it."""
        return self._counter.count(text)

    def _fragment(self, query: RecallQuery, node: Json, row: asyncpg.Record, handles: Handles) -> Fragment:
        payload: Json = node.get("payload") or {"text": node.get("snippet", "")}
        at = parse_timestamp(node["timestamp"])
        moved = self._weights.recency * 0.5 ** (max(0, query.now - at) / (_DAY_US * self._weights.recency_days))
        if row["note_id"] is None:
            return Fragment(
                note_id=None,
                event_id=node["event_id"],
                handle=EVENT_PREFIX + handles.of(node["event_seq"]),
                text=searchable_text(payload),
                speaker=speaker_of(payload),
                at=at,
                score=_moved(node["score"], moved),
            )
        age, idle = (max(0, query.now - to_microseconds(row[name])) / _DAY_US for name in ("created_at", "changed_at"))
        importance = importance_now(row["kind"], row["importance"], anchor=row["anchor"], idle_days=idle)
        return Fragment(
            note_id=row["note_id"],
            event_id=node["event_id"],
            handle=NOTE_PREFIX + handles.of(row["first_seq"]),
            text=searchable_text(payload),
            speaker=speaker_of(payload),
            at=at,
            score=_moved(node["score"], moved + self._weights.importance * importance),
            kind=row["kind"],
            topic=row["topic"],
            keywords=tuple(payload.get("note", {}).get("keywords", ())),
            importance=round(importance, 3),
            tier=tier(row["kind"], row["importance"], anchor=row["anchor"], age_days=age, idle_days=idle),
        )


def _counts(query: RecallQuery, nodes: dict[int, Json], row: asyncpg.Record) -> bool:
    """Tell whether a hit is there still, and is what was asked for."""
    if row["reason"] not in (None, "restored"):
        return False
    if row["note_id"] is None:
        return nodes[row["event_seq"]]["type"] != NOTE_TYPE and not query.wants_notes
    if row["session"] and row["context_id"] != query.session_id:
        return False
    if Lasting.of(row).has_expired(query.now):
        return False
    if query.kind is not None and row["kind"] != query.kind:
        return False
    if query.topic is not None and row["topic"].casefold() != query.topic.casefold():
        return False
    return query.min_importance is None or row["importance"] >= query.min_importance


def _moved(score: int, share: float) -> int:
    return score * (_PER_MILLE + round(_PER_MILLE * share)) // _PER_MILLE


def _events(node: Json) -> Iterator[Json]:
    if node["kind"] == "event":
        yield node
    for child in node.get("children", ()):
        yield from _events(child)
