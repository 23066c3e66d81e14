"""Nobody sees a node outside the rule: query.participants is a subset of node.participants (§14.3, §18).

Random logs over few names, so that sets nest, overlap and miss each other; half of each log is in the snapshot, half
in the fresh tail, some events are internal. Every read tool is asked by random participants and compared with an
oracle that knows the whole log: nothing outside, and nothing missing either.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from myria import errors
from myria.log.event import parse_event
from myria.log.limits import Limits
from myria.log.masks import Masks
from myria.memory import Memory
from myria.search import unindexed, visible_blocks
from myria.search.queries import EventNodesQuery, ReferencesQuery
from myria.settings import Settings
from tests.support.building import build_now
from tests.support.counts import SOAK, share
from tests.support.postgres import Database

Json = dict[str, Any]

NAMES = ("ann", "bob", "carol", "dan", "eve", "agent")
WORDS = ("tea", "boat", "garden", "invoice", "piano", "winter", "doctor", "train", "recipe", "letter")
LOGS = share(200)
QUERIES_PER_LOG = 100 if SOAK else 40
MOST_PAGES = 5
"""About how many pages one answer is read in: forty pages of one event each show nothing that five do not."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """What the oracle knows of one event."""

    event_id: str
    participants: frozenset[str]
    internal: bool
    text: str


def _participants(rng: random.Random, most: int = 4) -> tuple[str, ...]:
    return tuple(sorted(rng.sample(NAMES, rng.randint(1, most))))


async def _append(memory: Memory, tenant: str, rng: random.Random, start: int, count: int) -> list[Known]:
    new = []
    moment = 0
    for number in range(start, start + count):
        moment += rng.choice((20, 60, 4000, 90_000))
        new.append(
            parse_event(
                {
                    "timestamp": f"2026-0{1 + start % 2}-{1 + moment // 86_400 % 28:02d}T"
                    f"{moment // 3600 % 24:02d}:{moment // 60 % 60:02d}:{moment % 60:02d}Z",
                    "channel": rng.choice(("chat", "mail")),
                    "participants": list(_participants(rng)),
                    "payload": {"text": " ".join(rng.choices(WORDS, k=4)), "number": number},
                    "internal": rng.random() < 0.15,
                },
                Limits(),
            )
        )
    results = []
    for at in range(0, len(new), 7):
        results += await memory.log.append_events(tenant, new[at : at + 7])
    return [
        Known(
            event_id=result.event_id,
            participants=frozenset(event.participants),
            internal=event.internal,
            text=orjson.loads(event.payload_json)["text"],
        )
        for event, result in zip(new, results, strict=True)
    ]


def _walk(node: Json, above: frozenset[str] | None = None) -> Iterator[tuple[Json, frozenset[str] | None]]:
    yield node, above
    own = frozenset(node["participants"])
    for child in node.get("children", ()):
        yield from _walk(child, own)


def _check(answer: Json, asked_by: frozenset[str], may_see: dict[str, Known]) -> set[str]:
    """Check every node of an answer; return the ids of its events."""
    seen: set[str] = set()
    for node, above in _walk(answer["root"]):
        participants = frozenset(node["participants"])
        assert asked_by <= participants, node
        assert above is None or participants <= above, node
        if node["kind"] in ("event", "event_ref"):
            assert node["event_id"] in may_see, node
            assert frozenset(may_see[node["event_id"]].participants) == participants
            assert node["event_id"] not in seen
            seen.add(node["event_id"])
    return seen


async def _pages(memory: Memory, tenant: str, query: EventNodesQuery | ReferencesQuery) -> list[Json]:
    pages: list[Json] = []
    while True:
        if isinstance(query, EventNodesQuery):
            pages.append(await memory.retrieval.query_event_nodes(tenant, query))
        else:
            pages.append(await memory.retrieval.query_references(tenant, query))
        if pages[-1]["next_cursor"] is None:
            return pages
        query = type(query)(**{**_fields(query), "cursor": pages[-1]["next_cursor"]})


def _fields(query: Any) -> dict[str, Any]:
    return {name: getattr(query, name) for name in query.__dataclass_fields__}


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(LOGS))
async def test_nothing_outside_the_rule_is_ever_shown(
    database: Database, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over trees and tail, all read tools, cursors and roots, answers hold exactly what the participants may see,
    whether scopes are packed or not."""
    monkeypatch.setattr(visible_blocks, "SHARED_FROM", 1 + 8 * (seed % 2))
    monkeypatch.setattr(unindexed, "FEW_SCOPES", 64 * (seed % 2))
    async with Memory(database.server_dsn, Settings()) as memory:
        await _one_log(memory, database, f"t{seed}", random.Random(seed))


async def _one_log(memory: Memory, database: Database, tenant: str, rng: random.Random) -> None:
    log = await _append(memory, tenant, rng, 0, rng.randint(20, 60))
    await build_now(database.builder_dsn, tenant=tenant)
    log += await _append(memory, tenant, rng, 1, rng.randint(1, 30))
    topics: dict[str, frozenset[str]] = {}
    for _ in range(QUERIES_PER_LOG):
        await _one_query(memory, tenant, rng, log, topics)


async def _one_query(
    memory: Memory, tenant: str, rng: random.Random, log: list[Known], topics: dict[str, frozenset[str]]
) -> None:
    asked_by = _participants(rng, 3)
    mask = frozenset(asked_by)
    include_internal = rng.random() < 0.3
    may_see = {
        known.event_id: known
        for known in log
        if mask <= known.participants and (include_internal or not known.internal)
    }
    text = rng.choice(("", " ".join(rng.choices(WORDS, k=2)), f"what did {rng.choice(NAMES)} say about tea"))
    common: Json = {"participants": asked_by, "query": text or None, "include_internal": include_internal}

    answer = await memory.retrieval.query_event_nodes(tenant, EventNodesQuery(**common, limit=200))
    seen = _check(answer, mask, may_see)
    if not text:
        assert seen == set(may_see)
    elif not text.startswith("what"):
        words = set(text.split())
        assert {known.event_id for known in may_see.values() if words & set(known.text.split())} <= seen

    answer = await memory.retrieval.query_references(
        tenant, ReferencesQuery(**common, max_nodes=rng.choice((5, 40, 500)))
    )
    _check(answer, mask, may_see)
    for node, _ in _walk(answer["root"]):
        if "topic_id" in node:
            topics[node["topic_id"]] = topics[node["node_id"]] = frozenset(node["participants"])

    size = max(rng.randint(1, 9), len(seen) // MOST_PAGES)
    pages = await _pages(memory, tenant, EventNodesQuery(**common, limit=size))
    ids = [child["event_id"] for page in pages for child in page["root"]["children"]]
    assert len(ids) == len(set(ids))
    assert set(ids) == seen
    for page in pages:
        _check(page, mask, may_see)

    await _one_look_up(memory, tenant, rng, log, mask, include_internal=include_internal)
    if topics:
        await _one_root(memory, tenant, rng, topics=topics, common=common, may_see=may_see)


async def _one_look_up(
    memory: Memory, tenant: str, rng: random.Random, log: list[Known], mask: frozenset[str], *, include_internal: bool
) -> None:
    known = rng.choice(log)
    allowed = mask <= known.participants and (include_internal or not known.internal)
    try:
        found = await memory.retrieval.get_event(
            tenant, known.event_id, Masks.containing(mask), include_internal=include_internal
        )
    except errors.EventNotFound:
        assert not allowed
    else:
        assert allowed
        assert frozenset(found["event"]["participants"]) == known.participants


async def _one_root(
    memory: Memory,
    tenant: str,
    rng: random.Random,
    *,
    topics: dict[str, frozenset[str]],
    common: Json,
    may_see: dict[str, Known],
) -> None:
    root = rng.choice(sorted(topics))
    mask = frozenset(common["participants"])
    try:
        answer = await memory.retrieval.query_references(tenant, ReferencesQuery(**common, root=root, max_nodes=500))
    except errors.TopicNotFound:
        assert not mask <= topics[root]
    else:
        assert mask <= topics[root]
        _check(answer, mask, may_see)
        for node, _ in _walk(answer["root"]):
            assert node["kind"] == "root" or frozenset(node["participants"]) == topics[root]
    if root.startswith("top_"):
        try:
            topic = (await memory.retrieval.get_topic(tenant, root, Masks.containing(mask)))["topic"]
        except errors.TopicNotFound:
            assert not mask <= topics[root]
        else:
            assert mask <= topics[root] == frozenset(topic["participants"])
