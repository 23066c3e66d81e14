"""Explanations where models take part in the ranking: by meaning, and by a second look."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import orjson
import pytest

from myria.log.event import parse_event
from myria.memory import Memory
from myria.search.queries import EventNodesQuery, ReferencesQuery
from myria.settings import McpSettings, Settings
from tests.llm.conftest import Configuring, Starting
from tests.llm.provider import Answer, Asked, Script
from tests.llm.test_embeddings import Embedding, catching_up, embedding
from tests.llm.test_second_look import Looking, looking
from tests.llm.test_walking import IN_TOPICS, QUERY, adding_further, fill, opening_topics
from tests.reads.asking import append
from tests.reads.test_explaining import EVENTS, LIMITS, questions
from tests.support import builds
from tests.support.counts import share
from tests.support.postgres import Database

__all__ = ["embedding", "looking"]

Json = dict[str, Any]

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
    that left it out, also where vectors and a second look move hits; and each of them gives something. So in trees."""
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
        await _compare_trees(memory)
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


def _events(node: Json) -> list[Json]:
    """Return the events of a tree, each place of each."""
    if "children" not in node:
        return [node]
    return [event for child in node["children"] for event in _events(child)]


async def _compare_trees(memory: Memory) -> None:
    """Compare the explanations of trees with the whole ranking of the same questions."""
    rng, stages = random.Random(14), set()
    everything = EventNodesQuery(participants=("agent_fern",), limit=10_000)
    seen_by_all = (await memory.retrieval.query_event_nodes("default", everything))["root"]["children"]
    for asked in questions(max(20, QUESTIONS // 2)):
        whole = (await memory.retrieval.query_event_nodes("default", replace(asked, limit=60, participants=None)))[
            "root"
        ]
        ranked = {node["event_id"]: (place, node) for place, node in enumerate(whole["children"], 1)}
        question = ReferencesQuery(
            participants=asked.masks.participants,
            query=asked.query,
            explain=True,
            max_nodes=rng.choice((6, 20, 60)),
            max_tokens=rng.choice((None, None, 1_500)),
        )
        plain = await memory.retrieval.query_references("default", replace(question, explain=False, participants=None))
        expected = rng.choice(rng.choice((seen_by_all, whole["children"] or seen_by_all)))
        answer = await memory.retrieval.query_references(
            "default", replace(question, expected=expected["event_id"], participants=None)
        )
        told, shown = answer.pop("expected"), {}
        # Cursors name the transactions that the server had under way.
        assert (answer.pop("next_cursor") is None) == (plain.pop("next_cursor") is None) or question.max_tokens
        for node in _events(answer["root"]):
            assert sum(node["signals"].values()) == node["score"], (question.query, node["event_id"])
            if node["event_id"] in ranked:
                of_list = ranked[node["event_id"]][1]
                assert (node["score"], node["signals"]) == (of_list["score"], of_list["signals"])
            shown[node["event_id"]] = node.pop("signals")
        assert question.max_tokens or answer == plain  # signals take room where tokens are bounded
        if not set(question.masks.participants) <= set(expected["participants"]):
            nothing: Json = {"stage": "not_visible", "place": None, "score": 0, "signals": {}}
            assert told == {"event_id": expected["event_id"], **nothing}
        elif expected["event_id"] in ranked:
            place, node = ranked[expected["event_id"]]
            left_out = ("no_room",) if question.max_tokens is None else ("no_room", "said_again")
            assert told["stage"] in (("shown",) if expected["event_id"] in shown else left_out)
            assert (told["place"], told["score"], told["signals"]) == (place, node["score"], node["signals"])
        else:
            assert told["stage"] in ("not_matched", "nothing_fits", "no_room")
            assert expected["event_id"] not in shown
        stages.add(told["stage"])
    assert {"shown", "no_room", "not_visible"} <= stages


async def test_what_is_masked_leaves_no_trace(
    database: Database, provide: Starting, embedding: Embedding, looking: Looking
) -> None:
    """Who expects an event of others is told what it would be told of no event, and models are asked the same."""
    provider = provide(modelled)
    settings = replace(Settings(), embeddings=embedding(provider).embeddings, second_look=looking(provider).second_look)
    async with Memory(database.server_dsn, settings) as memory, catching_up(database, settings) as catch_up:
        await append(memory, [parse_event(event, LIMITS) for event in EVENTS[:200]])
        await builds.build(database, configured=settings)
        await catch_up()
        of_jonas = EventNodesQuery(participants=("jonas",), limit=200)
        nodes = (await memory.retrieval.query_event_nodes("default", of_jonas))["root"]["children"]
        hidden = next(node for node in nodes if "rosa" not in node["participants"])
    text = hidden["payload"]["text"]
    asked_for: dict[str, list[Any]] = {}
    for expected in (hidden["event_id"], hidden["event_id"][:-4] + "0000"):
        provider.asked.clear()
        async with Memory(database.server_dsn, settings) as memory:  # without what another one remembers of answers
            asked = ReferencesQuery(participants=("rosa",), query=text, explain=True, expected=expected, max_nodes=40)
            answer = await memory.retrieval.query_references("default", asked)
        answer.pop("next_cursor")  # it names the transactions that the server had under way
        assert answer["expected"].pop("event_id") == expected
        assert expected not in str(answer)
        asked_for[expected] = [answer, [one.body for one in provider.asked]]
        looked_at = [one.body["documents"] for one in provider.asked if one.path.endswith("/rerank")]
        assert looked_at
        assert not any(text in document for documents in looked_at for document in documents)
    first, second = asked_for.values()
    assert first == second


@pytest.mark.parametrize(
    ("script", "question"), [(adding_further, QUERY), (opening_topics, IN_TOPICS)], ids=["ranked", "unranked"]
)
async def test_a_walk_explains_what_it_adds(
    database: Database, provide: Starting, configured: Configuring, script: Script, question: ReferencesQuery
) -> None:
    """An event that a model added is shown, whether or not it was ranked; the answer says so where it is expected."""
    await fill(database)
    settings = replace(Settings(), llm=configured(provide(script)), mcp=McpSettings(request_deadline_s=3600))
    question = replace(question, explain=True, participants=None)
    async with Memory(database.server_dsn, settings) as memory:
        plain = replace(question, mode="deterministic", participants=None)
        without = {
            node["event_id"] for node in _events((await memory.retrieval.query_references("default", plain))["root"])
        }
        walked = _events((await memory.retrieval.query_references("default", question))["root"])
        added = [node for node in walked if node["event_id"] not in without]
        assert added
        assert all(sum(node["signals"].values()) == node["score"] for node in walked)
        assert all(node["score"] > 0 for node in added) == (script is adding_further)
        for node in added:
            asked = replace(question, expected=node["event_id"], participants=None)
            told = (await memory.retrieval.query_references("default", asked))["expected"]
            assert told["stage"] == "shown"
            if node["score"]:  # of what was not among the hits, the node says nothing of the ranking
                assert (told["score"], told["signals"]) == (node["score"], node["signals"])
            asked = replace(plain, expected=node["event_id"], participants=None)
            told = (await memory.retrieval.query_references("default", asked))["expected"]
            assert told["stage"] == ("no_room" if script is adding_further else told["stage"]) != "shown"
