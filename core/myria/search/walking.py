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
from myria.search.topics import Path, TopicReader
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
    """Collect what a walk starts from: hits of the answer, further hits, and the topics above them.

    Args:
        page: the deterministic answer.
        wider: the same ranking with further hits.
        sought: words of the question, around which long texts are cut.
    """
    from myria.llm.inspection import ScopesInForce  # noqa: PLC0415 - only where a model walks
    from myria.llm.walker import MOST_FURTHER, MOST_IN_ANSWER, MOST_TOPICS, Start  # noqa: PLC0415

    placed_count = page.answer.taken
    answer_hits = [_candidate(wider, index, sought) for index in range(min(placed_count, len(wider.hits)))]
    further = [_candidate(wider, index, sought) for index in range(placed_count, len(wider.hits))][:MOST_FURTHER]
    topics: dict[Path, None] = {}
    for candidate in (*answer_hits[:MOST_IN_ANSWER], *further):
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
            floor=page.result.snapshot.cutoff,
        ),
        found=answer_hits[:MOST_IN_ANSWER],
        further=further,
        topics=list(topics)[:MOST_TOPICS],
        room=room_of(query),
    )


async def walked_answer(
    database: Database,
    topic_reader: TopicReader,
    query: ReferencesQuery,
    answer: Json,
    within: Within | None,
    *,
    page: Page,
    wider: Page,
    walked: Walked,
) -> Json:
    """Return the deterministic answer with a walk's additions, without the last ones that break the caller's bound."""
    ranked = {hit.event_seq: leafward for hit, leafward in zip(wider.result.hits, wider.hits, strict=True)}
    placed = {hit.event_seq for hit in page.result.hits[: page.answer.taken]}
    chosen = [event for event in walked.additions if event.event_seq not in placed]
    unranked = [event for event in chosen if event.event_seq not in ranked]
    topics = {**wider.topics, **page.topics}
    if unranked:
        async with database.read(page.result.snapshot.tenant) as connection:
            unranked_hits, unranked_topics = await _read_unranked(connection, topic_reader, query, page, unranked)
        ranked |= unranked_hits
        topics |= unranked_topics
    additions = [ranked[event.event_seq] for event in chosen if event.event_seq in ranked]
    while True:
        tree = _with_additions(query, page, additions, topics) if additions else page.answer
        extended = {
            **answer,
            "root": tree.root,
            **degraded(walked.reason),
            "counts": counts(tree),
            "walk": {"rounds": walked.rounds, "calls": walked.calls, "tokens": walked.tokens},
        }
        if "expected" in answer and query.expected in set(_ids(tree.root)):
            extended["expected"] = {**answer["expected"], "stage": "shown"}
        if within is None or not additions or within(extended):
            return extended
        additions = additions[:-1]


async def _read_unranked(
    connection: Connection, topic_reader: TopicReader, query: ReferencesQuery, page: Page, chosen: Sequence[ShownEvent]
) -> tuple[dict[int, Leafward], dict[bytes, Json]]:
    """Read the events that the model found outside of the ranking, as far as they may be shown and pass the filters.

    Returns:
        the events ready to be placed, by event_seq, and the JSON of the topics above them.
    """
    snapshot = page.result.snapshot
    scopes = {scope.scope_id: scope for scope in page.result.scopes}
    event_seqs = [event.event_seq for event in chosen]
    rows = await connection.fetch(sql("events.by_seqs"), snapshot.tenant, event_seqs, list(scopes))
    withdrawn = {
        row["event_seq"] for row in await connection.fetch(sql("events.withdrawn"), snapshot.tenant, event_seqs)
    }
    rows_by_seq = {
        row["event_seq"]: row
        for row in rows
        if _fits(query, row) and row["event_seq"] <= snapshot.cutoff and row["event_seq"] not in withdrawn
    }
    shown_events = [event for event in chosen if event.event_seq in rows_by_seq]
    topics = await topic_reader.topics(
        connection,
        snapshot.tenant,
        [(scopes[event.scope_id], event.path) for event in shown_events],
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
            )
            | ({"signals": {}} if query.explain else {}),  # it was not ranked, so nothing gave it points
            path=event.path,
        )
        for event in shown_events
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
    """Return the answer's tree with as many additions, in order, as have room in what is reserved for them.

    Every event of the deterministic answer stays: an addition that would push one below max_depth is left out.
    """
    base_hits = list(page.answer.placed)
    required_ids = set(_ids(page.answer.root))
    all_added = _assembled(query, page, [*base_hits, *additions], topics)
    if required_ids <= set(_ids(all_added.root)):
        return all_added
    best, placed_hits = page.answer, base_hits
    for addition in additions:
        trial = _assembled(query, page, [*placed_hits, addition], topics)
        if len(trial.placed) == len(placed_hits) + 1 and required_ids <= set(_ids(trial.root)):
            best, placed_hits = trial, [*placed_hits, addition]
    return best


def _assembled(query: ReferencesQuery, page: Page, hits: Sequence[Leafward], topics: Mapping[bytes, Json]) -> Assembled:
    room = replace(page.room, nodes=page.room.nodes + room_of(query))
    return assemble(hits, room, topics={**page.topics, **topics}, asked_by=query.masks.participants)


def _candidate(page: Page, index: int, sought: frozenset[str]) -> WalkCandidate:
    """Return a hit of a page, by its index, as a walk is shown it."""
    from myria.llm.inspection import ShownEvent  # noqa: PLC0415
    from myria.llm.walker import WalkCandidate  # noqa: PLC0415

    hit = page.result.hits[index]
    row = page.rows[hit.event_seq]
    payload = orjson.loads(row["payload"])
    return WalkCandidate(
        event=ShownEvent(
            event_seq=hit.event_seq,
            event_id=row["event_id"],
            scope_id=page.result.scope(hit).scope_id,
            path=page.paths[index],
        ),
        participants=page.result.scope(hit).participants,
        at=rfc3339_of(row["occurred_at"], row["utc_offset"]),
        speaker=speaker_of(payload),
        text=passage(whole_text(payload), sought, SNIPPET_CHARACTERS),
    )


def _ids(node: Json) -> Iterator[str]:
    """Yield the ids of all events below a node."""
    children: Iterable[Json] = node.get("children", ())
    for child in children:
        if child["kind"] in ("event", "event_ref"):
            yield child["event_id"]
        else:
            yield from _ids(child)
