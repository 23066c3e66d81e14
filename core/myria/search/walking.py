"""Answers with a model's additions: the deterministic answer, and what a walk added within the reserved room.

Rows read after the first transaction has ended are immutable and were visible in it. So the answer still belongs to one
snapshot, and no transaction is open while a model thinks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import asyncpg
import orjson

from myria.db.clock import rfc3339_of, to_microseconds
from myria.log.payloads import speaker_of, whole_text
from myria.search.filters import Filters
from myria.search.nodes import SNIPPET_CHARACTERS
from myria.search.paths import Path
from myria.search.queries import ReferencesQuery
from myria.search.result import SearchResult
from myria.search.tree import Assembled, Leafward, Room, assemble
from myria.text.passages import passage

if TYPE_CHECKING:
    from myria.llm.walker import Start, WalkCandidate

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """A deterministic answer with what it was made of: ranked hits, their rows and places, and the tree."""

    result: SearchResult
    hits: Sequence[Leafward]
    rows: Mapping[int, asyncpg.Record]
    paths: Sequence[Path]
    topics: Mapping[bytes, Json]
    answer: Assembled
    room: Room


def room_of(query: ReferencesQuery) -> int:
    """Return how many nodes a walk may add: a quarter of max_nodes, beyond it."""
    return query.max_nodes // 4


def start_of(tenant: str, query: ReferencesQuery, page: Page, wider: Page, sought: frozenset[str]) -> Start:
    """Return where a walk begins; `wider` continues the ranking of `page`."""
    from myria.llm.inspection import ScopesInForce  # noqa: PLC0415 - only where a model walks
    from myria.llm.walker import MOST_FURTHER, MOST_IN_ANSWER, MOST_TOPICS, Start  # noqa: PLC0415

    placed = page.answer.taken
    inside = [_candidate(wider, at, sought) for at in range(min(placed, len(wider.hits)))]
    further = [_candidate(wider, at, sought) for at in range(placed, len(wider.hits))][:MOST_FURTHER]
    topics: dict[Path, None] = {}
    for candidate in (*inside[:MOST_IN_ANSWER], *further):
        path = candidate.event.path
        if path:
            topics.setdefault(path[:1])
            topics.setdefault(path)
    return Start(
        tenant=tenant,
        question=query.query or "",
        mask=ScopesInForce(
            masks=query.masks,
            scopes={scope.scope_id: scope.participants for scope in page.result.scopes},
            cutoff=page.result.pinned.cutoff,
            fresh=True,
            floor=page.result.pinned.floor,
        ),
        found=inside[:MOST_IN_ANSWER],
        further=further,
        topics=list(topics)[:MOST_TOPICS],
        room=room_of(query),
    )


def fits(query: ReferencesQuery, row: asyncpg.Record) -> bool:
    """Tell whether an event passes the filters of a query, and is internal only if the query includes these."""
    return (query.include_internal or not row["internal"]) and Filters.of(query).fits(
        channel=row["channel"],
        type=row["type"],
        context_id=row["context_id"],
        timestamp=to_microseconds(row["occurred_at"]),
    )


def with_additions(
    query: ReferencesQuery, page: Page, additions: Sequence[Leafward], topics: Mapping[bytes, Json]
) -> Assembled:
    """Return the answer's tree with additions, in order, as far as the reserved room goes.

    Every event of the deterministic answer stays: an addition that would push one below max_depth is left out.
    """
    base = list(page.answer.placed)
    must = set(_ids(page.answer.root))
    whole = _assembled(query, page, [*base, *additions], topics)
    if must <= set(_ids(whole.root)):
        return whole
    best, placed = page.answer, base
    for addition in additions:
        tried = _assembled(query, page, [*placed, addition], topics)
        if len(tried.placed) == len(placed) + 1 and must <= set(_ids(tried.root)):
            best, placed = tried, [*placed, addition]
    return best


def _assembled(query: ReferencesQuery, page: Page, hits: Sequence[Leafward], topics: Mapping[bytes, Json]) -> Assembled:
    room = replace(page.room, nodes=page.room.nodes + room_of(query))
    return assemble(hits, room, topics={**page.topics, **topics}, asked_by=query.masks.participants)


def _candidate(page: Page, at: int, sought: frozenset[str]) -> WalkCandidate:
    from myria.llm.inspection import ShownEvent  # noqa: PLC0415
    from myria.llm.walker import WalkCandidate  # noqa: PLC0415

    hit = page.result.hits[at]
    row = page.rows[hit.event_seq]
    payload = orjson.loads(row["payload"])
    return WalkCandidate(
        event=ShownEvent(
            event_seq=hit.event_seq,
            event_id=row["event_id"],
            scope_id=page.result.scope(hit).scope_id,
            path=page.paths[at],
        ),
        participants=page.result.scope(hit).participants,
        at=rfc3339_of(row["occurred_at"], row["utc_offset"]),
        speaker=speaker_of(payload),
        text=passage(whole_text(payload), sought, SNIPPET_CHARACTERS),
    )


def _ids(node: Json) -> Iterator[str]:
    children: Iterable[Json] = node.get("children", ())
    for child in children:
        if child["kind"] in ("event", "event_ref"):
            yield child["event_id"]
        else:
            yield from _ids(child)
