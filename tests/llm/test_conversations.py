"""Whole conversations through a scripted provider: what is published is the plan, replayed without it; walks only add.

MYRIA_TEST_CONVERSATIONS names a folder with events.jsonl and questions.jsonl (`make soak` takes all of it, otherwise a
tenth); without it the sample of examples/ is used.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from myria.builds import Outcome
from myria.builds.replay import replay
from myria.db.database import Database as Pool
from myria.log.event import parse_event
from myria.log.limits import Limits
from myria.log.scopes import canonical_participants
from myria.memory import Memory
from myria.search.queries import ReferencesQuery
from myria.settings import Settings
from tests.llm.conftest import Configuring, Starting
from tests.llm.oracle import Oracle
from tests.llm.test_building import leaves_of, sound, with_model
from tests.llm.test_walking import at_random
from tests.reads.asking import ids_of
from tests.support import builds
from tests.support.counts import CHECK, SOAK, share
from tests.support.events import TENANT, append
from tests.support.postgres import Database

FOLDER = os.environ.get("MYRIA_TEST_CONVERSATIONS")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
_FIELDS = (
    *("timestamp", "channel", "participants", "source_event_key", "type", "context_id", "payload", "topic_hints"),
    "internal",
)


def _lines(name: str) -> Iterator[dict[str, Any]]:
    path = Path(FOLDER) / name if FOLDER else EXAMPLES / name.replace("events", "workshop")
    for line in path.read_text(encoding="utf-8").splitlines():
        yield orjson.loads(line)


def _events() -> list[Any]:
    """Return the conversations: all in a soak run or in the small sample, else their first tenth each."""
    found = list(_lines("events.jsonl"))
    if FOLDER and not SOAK:
        by_conversation: dict[str, list[Any]] = {}
        for one in found:
            by_conversation.setdefault(one["conversation"], []).append(one)
        found = [one for part in by_conversation.values() for one in part[: len(part) // 10]]
    return [
        parse_event({key: value for key, value in one.items() if key in _FIELDS and value is not None}, Limits())
        for one in found
    ]


@pytest.mark.soak
async def test_a_whole_build_and_its_replay(database: Database, provide: Starting, configured: Configuring) -> None:
    """Built in three steps with the oracle, the snapshot is its plans; with the provider gone replays are equal."""
    events = sorted(_events(), key=lambda one: one.timestamp)
    events = events[: len(events) // 3] if CHECK else events
    oracle = Oracle()
    provider = provide(oracle)
    llm = with_model(configured(provider, task_calls=100_000, task_usd=1000.0, task_deadline_s=3600.0))
    built = []
    third = len(events) // 3 + 1
    for start in range(0, len(events), third):
        await append(database.server_dsn, events[start : start + third])
        built.append(await builds.build(database, configured=llm))
    assert {one.outcome for one in built} == {Outcome.SUCCEEDED}
    assert not provider.errors
    assert not any("llm_units_degraded" in one.counts for one in built)

    planned = {leaf["summary"] for _, arguments in oracle.plans for leaf in arguments["leaves"]}
    labels = {leaf["label"] for _, arguments in oracle.plans for leaf in arguments["leaves"]}
    leaves = await leaves_of(database)
    held = [event_id for ids, _, _ in leaves.values() for event_id in ids]
    assert len(set(held)) == len(held)
    assert {summary for _, _, summary in leaves.values()} <= planned
    assert {label for _, label, _ in leaves.values()} <= labels
    counted = await builds.value(database, "SELECT count(*) FROM myria.events WHERE NOT internal")
    alone = await builds.value(
        database, "SELECT count(*) FROM myria.nodes WHERE node_type = 'leaf_topic' AND cardinality(event_seqs) = 1"
    )
    assert counted - alone <= len(held) <= counted
    calls = await builds.value(database, "SELECT count(*) FROM myria.llm_calls")
    assert calls == len(provider.asked) == sum(one.counts["llm_calls"] for one in built)
    await sound(database, deep=True)

    provider.close()
    before = await builds.roots(database)
    async with Pool(database.server_dsn) as pool:
        for one in built:
            repeated = await replay(pool, TENANT, one.build_id, Settings().planner)
            assert repeated["equal"]
    again = await builds.build(database, configured=llm, full=True, force=True)
    assert again.outcome is Outcome.SUCCEEDED
    assert await builds.roots(database) == before
    assert await builds.value(database, "SELECT count(*) FROM myria.llm_calls") == calls


@pytest.mark.soak
async def test_walks_only_add_on_every_question(database: Database, provide: Starting, configured: Configuring) -> None:
    """With a provider that chooses at random, each answer's refs are a superset of the deterministic answer's."""
    await append(database.server_dsn, _events())
    await builds.build(database)
    questions = list(_lines("questions.jsonl"))
    if FOLDER:
        questions = random.Random(5).sample(questions, share(len(questions)))
    provider = provide(at_random(11))
    llm = configured(provider, walk_rounds=3)
    added = walks = 0
    async with Memory(database.server_dsn, replace(Settings(), llm=llm)) as memory:
        for question in questions:
            query = ReferencesQuery(
                participants=canonical_participants(question["participants"]),
                query=question["question"],
                max_nodes=60,
            )
            plain = await memory.retrieval.query_references(TENANT, replace(query, mode="deterministic"))
            walked = await memory.retrieval.query_references(TENANT, query)
            assert set(ids_of(plain)) <= set(ids_of(walked)), question["id"]
            assert walked["counts"]["nodes"] <= 75
            added += len(set(ids_of(walked)) - set(ids_of(plain)))
            walks += walked["walk"]["rounds"] > 0
    assert walks == len(questions)
    assert added > len(questions) // 3
    assert not provider.errors
