"""Explanations of answers: shares add up to scores, and the stage that left an expected event out is the right one."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from myria.log.event import parse_event
from myria.log.limits import Limits
from myria.memory import Memory
from myria.search.queries import EventNodesQuery, ReferencesQuery
from myria.settings import Settings
from tests.support import builds
from tests.support.counts import share
from tests.support.postgres import Database, Databases

SAMPLE = Path(__file__).parents[2] / "examples" / "workshop.jsonl"
EVENTS = [json.loads(line) for line in SAMPLE.read_text().splitlines()]
PEOPLE = ("ines", "jonas", "mika", "rosa")
LIMITS = Limits()
QUESTIONS = share(300, least=60)
ASKED = (
    "what did {} say about the heater?",
    "when is the soak test?",
    "who decided on the name?",
    "what is the price now, and what was it before?",
    "what happened last week?",
)


@pytest.fixture(scope="module")
def sample(databases: Databases) -> Any:
    """A database with the sample: most of it is built in, the rest is fresh."""
    import asyncio

    async def load(database: Database) -> None:
        async with Memory(database.server_dsn, Settings()) as memory:
            for part in (EVENTS[:480], EVENTS[480:]):
                for start in range(0, len(part), 100):
                    events = [parse_event(event, LIMITS) for event in part[start : start + 100]]
                    await memory.log.append_events("default", events)
                if part[0] is EVENTS[0]:
                    await builds.build(database)

    with databases.fresh() as database:
        asyncio.run(load(database))
        yield database


@pytest.fixture
async def memory(sample: Database) -> AsyncIterator[Memory]:
    """The memory over the sample."""
    async with Memory(sample.server_dsn, Settings()) as one:
        yield one


def questions(count: int = QUESTIONS) -> list[EventNodesQuery]:
    """Return questions about the sample, each asked by one of its people."""
    rng = random.Random(7)
    asked = []
    for number in range(count):
        who = rng.choice(PEOPLE)
        words = rng.choice(EVENTS)["payload"]["text"].split()
        start = rng.randrange(max(1, len(words) - 6))
        text = rng.choice(ASKED).format(who) if number % 3 == 0 else " ".join(words[start : start + 6])
        asked.append(EventNodesQuery(participants=(who,), query=text, limit=rng.choice((3, 10, 50)), explain=True))
    return asked


async def test_shares_add_up_to_the_score(memory: Memory) -> None:
    """Whatever is asked, what the signals gave to a hit is its score; and an explained answer is the same answer."""
    hits = 0
    for question in questions():
        answer = await memory.retrieval.query_event_nodes("default", question)
        plain = await memory.retrieval.query_event_nodes("default", replace(question, explain=False, participants=None))
        for node, other in zip(answer["root"]["children"], plain["root"]["children"], strict=True):
            assert sum(node.pop("signals").values()) == node["score"], (question.query, node["event_id"])
            assert node == other
            hits += 1
    assert hits > QUESTIONS


async def test_an_explained_text_is_the_same_text(memory: Memory) -> None:
    """Who asks why sees the text that a model gets without, however few tokens it may have."""
    for question in questions(20):
        for asked in (
            ReferencesQuery(participants=question.masks.participants, query=question.query, max_nodes=60),
            EventNodesQuery(participants=question.masks.participants, query=question.query, limit=20),
        ):
            texts = []
            for is_explained in (False, True):
                bounded = replace(asked, format="text", max_tokens=600, explain=is_explained, participants=None)
                text = (await memory.show("default", bounded)).text or ""
                texts.append([line for line in text.splitlines() if "with cursor" not in line])
            assert texts[0] == texts[1], question.query


async def test_an_expected_event_has_the_place_of_the_whole_ranking(memory: Memory) -> None:
    """Of events that were not shown, the stage is that of the pipeline: ranked later, not matched, or not visible."""
    rng, missed = random.Random(11), 0
    stages: dict[str, int] = {}
    seen_by_all = await memory.retrieval.query_event_nodes(
        "default", EventNodesQuery(participants=("agent_fern",), limit=10_000)
    )
    for question in questions():
        whole = await memory.retrieval.query_event_nodes("default", replace(question, limit=10_000, participants=None))
        order = [node["event_id"] for node in whole["root"]["children"]]
        scores = [node["score"] for node in whole["root"]["children"]]
        assert all(first >= second for first, second in pairwise(scores))
        expected = rng.choice(seen_by_all["root"]["children"])
        answer = await memory.retrieval.query_event_nodes(
            "default", replace(question, expected=expected["event_id"], participants=None)
        )
        told = answer["expected"]
        who = question.masks.participants
        if not set(who) <= set(expected["participants"]):
            assert told == {
                "event_id": expected["event_id"],
                "stage": "not_visible",
                "place": None,
                "score": 0,
                "signals": {},
            }
        elif expected["event_id"] in order:
            place = order.index(expected["event_id"]) + 1
            assert told["place"] == place
            assert told["stage"] == ("shown" if place <= question.limit else "no_room")
            assert sum(told["signals"].values()) == told["score"] == scores[place - 1]
        else:
            assert told["stage"] in ("not_matched", "nothing_fits")
            assert told["place"] is None
        missed += told["stage"] != "shown"
        stages[told["stage"]] = stages.get(told["stage"], 0) + 1
    assert missed >= QUESTIONS / 2
    assert {"no_room", "not_matched", "not_visible"} <= set(stages)


async def test_filters_and_unknown_ids_have_stages_of_their_own(memory: Memory) -> None:
    """An event that a filter excludes is named so; an id that is none looks as one that is not visible."""
    question = EventNodesQuery(participants=("rosa",), query="price", explain=True)
    best = (await memory.retrieval.query_event_nodes("default", question))["root"]["children"][0]
    filtered = replace(question, channel="nowhere", expected=best["event_id"], participants=None)
    told = (await memory.retrieval.query_event_nodes("default", filtered))["expected"]
    assert (told["stage"], told["excluded_by"]) == ("filtered", ["channel"])
    unknown = replace(question, expected="evt_nobody", participants=None)
    assert (await memory.retrieval.query_event_nodes("default", unknown))["expected"]["stage"] == "not_visible"


async def test_a_tree_explains_its_events_too(memory: Memory) -> None:
    """References carry signals, and an event for which the tree has no node is told to have no room."""
    question = ReferencesQuery(participants=("rosa",), query="price", explain=True, max_nodes=100)
    answer = await memory.retrieval.query_references("default", question)

    def events(node: dict[str, Any]) -> list[dict[str, Any]]:
        below = [event for child in node.get("children", ()) for event in events(child)]
        return below or ([node] if "event_id" in node else [])

    found = events(answer["root"])
    assert all(sum(event["signals"].values()) == event["score"] for event in found)
    last = min(found, key=lambda event: event["score"])
    small = replace(question, max_nodes=6, expected=last["event_id"], participants=None)
    assert (await memory.retrieval.query_references("default", small))["expected"]["stage"] == "no_room"


async def test_topics_of_an_answer_come_by_their_best_events(memory: Memory) -> None:
    """So a text for a model may say of them: best topic first. Within one, events need not come by their scores."""

    def best(node: dict[str, Any]) -> int:
        return max(map(best, node["children"])) if "children" in node else node["score"]

    for asked in {question.query for question in questions(60)}:
        question = ReferencesQuery(participants=("rosa",), query=asked, explain=True)
        answer = await memory.retrieval.query_references("default", question)
        scores = [best(child) for child in answer["root"]["children"]]
        assert scores == sorted(scores, reverse=True), asked


async def test_an_event_that_fits_on_no_page_is_not_said_to_come_later(memory: Memory) -> None:
    """What is larger than the whole answer may be is told from what a later page has."""
    question = ReferencesQuery(participants=("rosa",), query="price", explain=True, format="text", max_tokens=20)
    best = EventNodesQuery(participants=("rosa",), query="price", limit=2)
    first, second = (await memory.retrieval.query_event_nodes("default", best))["root"]["children"]
    for expected, stage in ((first, "too_large"), (second, "no_room")):
        asked = replace(question, expected=expected["event_id"], participants=None)
        told = (await memory.show("default", asked)).content
        assert told["expected"]["stage"] == stage
        assert told["next_cursor"]


async def test_every_page_adds_up_and_only_the_first_says_what_became_of_an_event(memory: Memory) -> None:
    """Shares add up on later pages too; where an expected event stands is a question to the first page."""
    question = EventNodesQuery(participants=("rosa",), query="what is the price of the heater", explain=True, limit=4)
    first = await memory.retrieval.query_event_nodes("default", question)
    later = replace(question, cursor=first["next_cursor"], expected="evt_nobody", participants=None)
    second = await memory.retrieval.query_event_nodes("default", later)
    for answer in (first, second):
        for node in answer["root"]["children"]:
            assert sum(node["signals"].values()) == node["score"]
    assert "expected" not in second


async def test_the_filter_is_named_where_nothing_matches_either(memory: Memory) -> None:
    """An event of another channel is filtered, also where the question holds no word that any text has."""
    of_rosa = EventNodesQuery(participants=("rosa",), limit=1)
    [newest] = (await memory.retrieval.query_event_nodes("default", of_rosa))["root"]["children"]
    asked = EventNodesQuery(
        participants=("rosa",), query="zzyzx", channel="nowhere", explain=True, expected=newest["event_id"]
    )
    assert (await memory.retrieval.query_event_nodes("default", asked))["expected"]["stage"] == "filtered"
    unfiltered = replace(asked, channel=None, participants=None)
    assert (await memory.retrieval.query_event_nodes("default", unfiltered))["expected"]["stage"] == "not_matched"


async def test_a_handle_tells_no_id_of_what_is_not_visible(memory: Memory) -> None:
    """Who expects an event by a handle learns its id only where they may see it."""
    of_jonas = EventNodesQuery(participants=("jonas",), limit=200)
    [hidden, *_] = [
        node
        for node in (await memory.retrieval.query_event_nodes("default", of_jonas))["root"]["children"]
        if "rosa" not in node["participants"]
    ]
    handle = (await memory.retrieval.handles("default")).of(hidden["event_seq"])
    for name in (f"e:{handle}", "e:999999999"):
        asked = EventNodesQuery(participants=("rosa",), query="price", explain=True, expected=name)
        told = (await memory.show("default", asked)).content["expected"]
        assert told["stage"] == "not_visible"
        assert told["event_id"] == name
