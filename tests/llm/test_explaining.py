"""Explanations where models take part in the ranking: by meaning, and by a second look."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace
from itertools import pairwise

import orjson
import pytest

from myria.log.event import parse_event
from myria.memory import Memory
from myria.search.queries import EventNodesQuery
from myria.settings import Settings
from tests.llm.conftest import Starting
from tests.llm.provider import Answer, Asked
from tests.llm.test_embeddings import Embedding, catching_up, embedding
from tests.llm.test_second_look import Looking, looking
from tests.reads.asking import append
from tests.reads.test_explaining import EVENTS, LIMITS, questions
from tests.support import builds
from tests.support.counts import share
from tests.support.postgres import Database

__all__ = ["embedding", "looking"]

QUESTIONS = share(300)
COMPONENTS = 24


def _component(word: str) -> int:
    return hashlib.sha256(word[:5].encode()).digest()[0] % COMPONENTS


def modelled(asked: Asked) -> Answer:
    """Answer as a model of meaning, and as one that re-ranks: words that begin alike mean something alike."""
    if asked.path.endswith("/rerank"):
        results = [
            {"index": at, "relevance_score": _component(text[-20:]) / COMPONENTS}
            for at, text in enumerate(asked.body["documents"])
        ]
        return Answer(body=orjson.dumps({"results": results}))
    data = []
    for index, text in enumerate(asked.body["input"]):
        vector = [0.1] * COMPONENTS
        for word in text.lower().split():
            vector[_component(word)] += 1.0
        data.append({"index": index, "embedding": vector})
    return Answer(body=orjson.dumps({"object": "list", "data": data, "model": "scripted/embed"}))


@pytest.mark.parametrize("models", ["vectors", "a second look", "both"])
async def test_explanations_hold_where_models_rank(
    database: Database, provide: Starting, embedding: Embedding, looking: Looking, models: str
) -> None:
    """What signals gave to a hit is its score, and an expected event has its place in the whole ranking or the stage
    that left it out, also where vectors and a second look move hits; and each of them gives something."""
    provider = provide(modelled)
    settings = Settings()
    if models != "a second look":
        settings = replace(settings, embeddings=embedding(provider).embeddings)
    if models != "vectors":
        settings = replace(settings, second_look=looking(provider).second_look)
    async with Memory(database.server_dsn, settings) as memory, catching_up(database, settings) as catch_up:
        await append(memory, [parse_event(event, LIMITS) for event in EVENTS[:300]])
        await builds.build(database, configured=settings)
        await append(memory, [parse_event(event, LIMITS) for event in EVENTS[300:360]])
        await catch_up()
        gave = await _compare(memory)
    assert ("meaning" in gave) == (models != "a second look")
    assert ("second_look" in gave) == (models != "vectors")


async def _compare(memory: Memory) -> set[str]:
    """Compare explanations of many questions with the whole ranking; return the signals that gave something."""
    rng, gave, missed = random.Random(13), set(), 0
    everything = EventNodesQuery(participants=("agent_fern",), limit=10_000)
    seen_by_all = (await memory.retrieval.query_event_nodes("default", everything))["root"]["children"]
    for question in questions(QUESTIONS):
        question = replace(question, limit=60, participants=None)
        whole = (await memory.retrieval.query_event_nodes("default", question))["root"]["children"]
        order = [node["event_id"] for node in whole]
        assert all(first["score"] >= second["score"] for first, second in pairwise(whole))
        for node in whole:
            assert sum(node["signals"].values()) == node["score"], (question.query, node["event_id"])
            gave |= {signal for signal, points in node["signals"].items() if points}
        expected = rng.choice(seen_by_all)
        asked = replace(question, limit=3, expected=expected["event_id"])
        told = (await memory.retrieval.query_event_nodes("default", asked))["expected"]
        if not set(question.masks.participants) <= set(expected["participants"]):
            assert told["stage"] == "not_visible"
        elif expected["event_id"] in order:
            place = order.index(expected["event_id"]) + 1
            assert (told["place"], told["stage"]) == (place, "shown" if place <= 3 else "no_room")
            assert sum(told["signals"].values()) == told["score"] == whole[place - 1]["score"]
        missed += told["stage"] != "shown"
    assert missed > QUESTIONS / 3
    return gave
