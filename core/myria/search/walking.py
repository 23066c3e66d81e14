"""Answers with a model's additions: the deterministic answer, and what a walk added within the reserved room.

Rows read after the first transaction has ended are immutable and were visible in it. So the answer still belongs to one
snapshot, and no transaction is open while a model thinks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import asyncpg
import orjson

from myria.db.clock import rfc3339_of, to_microseconds
from myria.db.database import Connection, Database
from myria.db.queries import sql
from myria.log.payloads import speaker_of, whole_text
from myria.search.answers import Page, Within, counts, degraded
from myria.search.nodes import SNIPPET_CHARACTERS, event_node
from myria.search.queries import ReferencesQuery
from myria.search.ranking import Filters
from myria.search.topics import Path, Paths
from myria.search.tree import Assembled, Leafward, assemble
from myria.text.passages import passage, sought_in

if TYPE_CHECKING:
    from myria.llm.inspection import ShownEvent
    from myria.llm.walker import Start, WalkCandidate, Walked

Json = dict[str, Any]


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
            cutoff=page.result.snapshot.cutoff,
            fresh=True,
            floor=page.result.snapshot.floor,
        ),
        found=inside[:MOST_IN_ANSWER],
        further=further,
        topics=list(topics)[:MOST_TOPICS],
        room=room_of(query),
    )


async def walked_answer(
    database: Database,
    paths: Paths,
    query: ReferencesQuery,
    answer: Json,
    within: Within | None,
    *,
    page: Page,
    wider: Page,
    walked: Walked,
) -> Json:
    """Return the deterministic answer with what a walk has added to it, as far as the bound allows."""
    ranked = {hit.event_seq: leafward for hit, leafward in zip(wider.result.hits, wider.hits, strict=True)}
    placed = {hit.event_seq for hit in page.result.hits[: page.answer.taken]}
    chosen = [event for event in walked.additions if event.event_seq not in placed]
    unranked = [event for event in chosen if event.event_seq not in ranked]
    topics = {**wider.topics, **page.topics}
    if unranked:
        async with database.read(page.result.snapshot.tenant) as connection:
            more, below = await _unranked(connection, paths, query, page, unranked)
        ranked |= more
        topics |= below
    additions = [ranked[event.event_seq] for event in chosen if event.event_seq in ranked]
    while True:
        tree = _with_additions(query, page, additions, topics) if additions else page.answer
        longer = {
            **answer,
            "root": tree.root,
            **degraded(walked.reason),
            "counts": counts(tree),
            "walk": {"rounds": walked.rounds, "calls": walked.calls, "tokens": walked.tokens},
        }
        if within is None or not additions or within(longer):
            return longer
        additions = additions[:-1]


async def _unranked(
    connection: Connection, paths: Paths, query: ReferencesQuery, page: Page, chosen: Sequence[ShownEvent]
) -> tuple[dict[int, Leafward], dict[bytes, Json]]:
    """Return the events that the model found in topics and that pass the filters, and the topics above them."""
    snapshot = page.result.snapshot
    scopes = {scope.scope_id: scope for scope in page.result.scopes}
    wanted = [event.event_seq for event in chosen]
    rows = await connection.fetch(sql("events.by_seqs"), snapshot.tenant, wanted, list(scopes))
    withdrawn = {row["event_seq"] for row in await connection.fetch(sql("events.withdrawn"), snapshot.tenant, wanted)}
    rows_by_seq = {
        row["event_seq"]: row
        for row in rows
        if _fits(query, row) and row["event_seq"] <= snapshot.cutoff and row["event_seq"] not in withdrawn
    }
    inside = [event for event in chosen if event.event_seq in rows_by_seq]
    topics = await paths.topics(
        connection,
        snapshot.tenant,
        [(scopes[event.scope_id], event.path) for event in inside],
        hidden=snapshot.hidden,
    )
    sought = sought_in(query.query)
    hits = {
        event.event_seq: Leafward(
            event=event_node(
                rows_by_seq[event.event_seq],
                scopes[event.scope_id].participants,
                indexed=not rows_by_seq[event.event_seq]["internal"],
                score=0,
                as_reference=True,
                with_payload=query.include_payload,
                sought=sought,
            ),
            path=event.path,
        )
        for event in inside
    }
    return hits, topics


def _fits(query: ReferencesQuery, row: asyncpg.Record) -> bool:
    """Tell whether an event passes the filters of a query, and is internal only if the query includes these."""
    return (query.include_internal or not row["internal"]) and Filters.of(query).fits(
        channel=row["channel"],
        type=row["type"],
        context_id=row["context_id"],
        timestamp=to_microseconds(row["occurred_at"]),
    )


def _with_additions(
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
