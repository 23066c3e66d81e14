"""Walks: a model may add to an answer, never take away, never see or name what is outside, never be late."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import orjson
import pytest

from myria.errors import ConfigurationError
from myria.memory import Memory
from myria.search.queries import EventNodesQuery, ReferencesQuery
from myria.settings import LlmSettings, McpSettings, Settings
from myria_server.api import answers
from tests.llm.conftest import Configuring, Starting
from tests.llm.oracle import last, shown
from tests.llm.provider import Answer, Asked, Script, calling
from tests.reads.asking import ids_of, walk
from tests.support import builds
from tests.support.events import TENANT, append, conversation, event
from tests.support.patience import PATIENCE_S, until
from tests.support.postgres import Database

Json = dict[str, Any]
ANA_BEN = ("ana", "ben")
QUERY = ReferencesQuery(participants=ANA_BEN, query="garden tomato seed water bridge", max_nodes=24)
IN_TOPICS = replace(QUERY, query="kitten vet vaccine", max_nodes=40)
"""A question of which not every event is among its hits."""


@asynccontextmanager
async def remembering(database: Database, llm: LlmSettings | None) -> AsyncIterator[Memory]:
    """Lend a memory with or without a model."""
    settings = replace(Settings(), llm=llm or LlmSettings(), mcp=McpSettings(request_deadline_s=3600))
    async with Memory(database.server_dsn, settings) as memory:
        yield memory


async def fill(database: Database) -> None:
    """Make three scopes, most of them in a snapshot, some in the tail."""
    for number, pair in enumerate((ANA_BEN, ("ana", "ben", "chloé"), ("ana", "dora"))):
        await append(database.server_dsn, conversation(90, seed=number, participants=pair))
    await builds.build(database)
    await append(database.server_dsn, conversation(20, seed=9, start=1_000_000))


async def ask(memory: Memory, query: ReferencesQuery) -> Json:
    """Return an answer that keeps its published model."""
    answer = await memory.retrieval.query_references(TENANT, query)
    answers.Tree.model_validate(answer)
    shown_nodes = list(walk(answer["root"]))
    assert answer["counts"]["nodes"] == len(shown_nodes)
    return answer


def adding_further(asked: Asked) -> Answer:
    """Choose the best hits that have no room in the answer."""
    return calling(asked, ("choose", {"add": [one["id"] for one in shown(asked)["further"]][:6], "stop": True}))


def opening_topics(asked: Asked) -> Answer:
    """Open a topic, then its last leaf, and choose all events of that."""
    newest = last(asked) if asked.body["messages"][-1]["role"] == "tool" else None
    if newest is None:
        root = next(one for one in shown(asked)["topics"] if "under" not in one)
        return calling(asked, ("inspect_subtree", {"root": root["id"], "depth": 4, "max_nodes": 40}))
    if "topics" in newest:
        leaf = [one for one in newest["topics"] if one["kind"] == "leaf"][-1]
        return calling(asked, ("inspect_leaf_refs", {"root": leaf["id"]}))
    return calling(asked, ("choose", {"add": [one["id"] for one in newest["events"]], "stop": True}))


def at_random(seed: int) -> Script:
    """Return a provider that opens and chooses at random among everything it was ever shown."""
    chosen = random.Random(seed)

    def script(asked: Asked) -> Answer:
        events, topics = seen(asked)
        match chosen.randrange(5):
            case 0 if topics:
                arguments = {"root": chosen.choice(topics), "depth": chosen.randint(1, 3)}
                return calling(asked, ("inspect_subtree", arguments))
            case 1 if topics:
                return calling(asked, ("inspect_leaf_refs", {"root": chosen.choice(topics)}))
            case 2 if events:
                return calling(asked, ("fetch_events", {"event_ids": chosen.sample(events, min(4, len(events)))}))
            case _:
                some = chosen.sample(events, min(chosen.randint(0, 12), len(events)))
                return calling(asked, ("choose", {"add": some, "stop": chosen.random() < 0.4}))

    return script


def seen(asked: Asked) -> tuple[list[str], list[str]]:
    """Return the aliases of events and of topics that a prompt has shown."""
    from tests.llm.fences import unfenced

    found: dict[str, None] = {}
    for message in asked.body["messages"]:
        content = str(message.get("content") or "")
        if message["role"] in ("user", "tool") and "=== data " in content:
            collect(unfenced(content), found)
    return [one for one in found if one[0] == "e"], [one for one in found if one[0] == "t"]


def collect(value: Any, found: dict[str, None]) -> None:
    """Gather every alias in shown data."""
    if isinstance(value, dict):
        if isinstance(value.get("id"), str):
            found[value["id"]] = None
        for inner in value.values():
            collect(inner, found)
    elif isinstance(value, list):
        for inner in value:
            collect(inner, found)


async def test_a_walk_adds_within_its_room(database: Database, provide: Starting, configured: Configuring) -> None:
    """The answer holds every ref of the deterministic one, the model's choices after them, and says how far it went."""
    await fill(database)
    provider = provide(adding_further)
    async with remembering(database, configured(provider)) as memory:
        plain = await ask(memory, replace(QUERY, mode="deterministic"))
        walked = await ask(memory, QUERY)
        assert memory.retrieval.walker is not None
        await memory.retrieval.walker.settle()

    assert "walk" not in plain
    assert walked["walk"] == {"rounds": 1, "calls": 1, "tokens": 120}
    assert set(ids_of(plain)) < set(ids_of(walked))
    assert walked["counts"]["nodes"] <= QUERY.max_nodes + QUERY.max_nodes // 4
    assert (walked["degraded"], walked["degraded_reason"]) == (False, None)
    assert (walked["next_cursor"] is None, walked["truncated"]) == (plain["next_cursor"] is None, plain["truncated"])
    rows = await builds.rows(database, "SELECT * FROM myria.llm_calls")
    assert [(row["workflow"], tuple(row["mask"]), row["outcome"]) for row in rows] == [("walk", ANA_BEN, "ok")]
    assert rows[0]["request_id"].startswith("req_")
    assert len(rows[0]["mask_scopes"]) == 2


async def test_without_a_model_answers_are_byte_identical(database: Database, configured: Configuring) -> None:
    """`auto` and `deterministic` answer the same bytes without a model; `llm` says that there is none.

    Cursors name the transactions that the server had under way, so they are left out.
    """
    await fill(database)
    async with remembering(database, None) as memory:
        auto = await ask(memory, QUERY)
        plain = await ask(memory, replace(QUERY, mode="deterministic"))
        wanted = await ask(memory, replace(QUERY, mode="llm"))
    assert plain["constraints"].pop("mode") == "deterministic"
    assert (auto.pop("next_cursor") is None) is (plain.pop("next_cursor") is None)
    assert orjson.dumps(auto) == orjson.dumps(plain)
    assert wanted["root"] == auto["root"]
    assert (wanted["degraded"], wanted["degraded_reason"]) == (True, "not_configured")
    assert "set llm.template" in wanted["degraded_note"]


async def test_who_walks(database: Database, provide: Starting, configured: Configuring) -> None:
    """No words, no room, a cursor, the setting, or the mode keep a model from being asked."""
    await fill(database)
    provider = provide(at_random(1))
    async with remembering(database, configured(provider)) as memory:
        first = await ask(memory, replace(QUERY, mode="deterministic"))
        for query in (
            replace(QUERY, query=None),
            replace(QUERY, max_nodes=3),
            replace(QUERY, cursor=first["next_cursor"]),
            replace(QUERY, mode="deterministic"),
        ):
            assert "walk" not in await ask(memory, query)
        await memory.retrieval.query_event_nodes(TENANT, EventNodesQuery(participants=ANA_BEN, query="garden"))
    async with remembering(database, configured(provider, walk=False)) as memory:
        assert "walk" not in await ask(memory, QUERY)
        assert not provider.asked
        assert "walk" in await ask(memory, replace(QUERY, mode="llm"))
    assert provider.asked


async def test_events_found_in_topics_are_added_with_their_place(
    database: Database, provide: Starting, configured: Configuring
) -> None:
    """What the model found by opening topics hangs under its own leaf, and keeps the filters of the question."""
    await fill(database)
    async with remembering(database, configured(provide(opening_topics))) as memory:
        query = IN_TOPICS
        plain = await ask(memory, replace(query, mode="deterministic"))
        walked = await ask(memory, query)
        added = set(ids_of(walked)) - set(ids_of(plain))
        none = await ask(memory, replace(query, until=1_767_225_600_000_000 + 1))

    assert walked["walk"]["rounds"] == 3
    assert added
    for node in walk(walked["root"]):
        for child in node.get("children", ()):
            if child["kind"] == "event_ref" and child["event_id"] in added:
                assert node["kind"] == "leaf_topic"
    assert none["degraded"] or not ids_of(none)


@pytest.mark.parametrize("max_depth", [None, 1, 2, 3])
async def test_a_random_provider_can_only_add(
    database: Database, provide: Starting, configured: Configuring, max_depth: int | None
) -> None:
    """Whatever a provider chooses, nothing of the deterministic answer goes, and nothing invisible comes."""
    await fill(database)
    rows = await builds.rows(
        database,
        "SELECT e.event_id, s.participants FROM myria.events e JOIN myria.scopes s USING (tenant_id, scope_id)",
    )
    visible = {row["event_id"] for row in rows if {"ana", "ben"} <= set(row["participants"])}
    provider = provide(at_random(7))
    async with remembering(database, configured(provider, walk_rounds=6)) as memory:
        for number in range(15):
            query = replace(
                QUERY,
                query=random.Random(number).choice(["garden tomato", "bread oven flour", "doctor", "tax invoice x"]),
                max_nodes=random.Random(number).randint(4, 60),
                max_depth=max_depth,
                max_tokens=random.Random(number).choice([None, 4000]),
            )
            plain = await ask(memory, replace(query, mode="deterministic"))
            walked = await ask(memory, query)
            assert set(ids_of(plain)) <= set(ids_of(walked)) <= visible
            assert walked["counts"]["nodes"] <= query.max_nodes + query.max_nodes // 4
    assert not provider.errors


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (lambda _: Answer(status=500), "http_5xx"),
        (lambda _: Answer(hang=True), "budget_time"),
        (lambda _: Answer(body=b"garbage"), "malformed_json"),
        (lambda asked: calling(asked, ("choose", {"add": ["e999"]})), "unknown_id"),
        (lambda asked: calling(asked, ("drop_tables", {})), "unknown_tool"),
        (lambda asked: calling(asked, ("choose", {"add": [], "stop": False})), "budget_rounds"),
        (lambda asked: calling(asked, ("choose", {"add": [], "stop": False}), finish="length"), "length"),
    ],
)
async def test_failures_leave_the_deterministic_answer(
    database: Database, provide: Starting, configured: Configuring, script: Callable[[Asked], Answer], reason: str
) -> None:
    """Any failure answers what the ranking found, before the request's end, marked degraded with its name."""
    await fill(database)
    deadline = 1.0 if reason == "budget_time" else 3500.0
    llm = configured(provide(script), walk_deadline_s=deadline, call_timeout_s=3600.0)
    async with remembering(database, llm) as memory:
        plain = await ask(memory, replace(QUERY, mode="deterministic"))
        walked = await ask(memory, QUERY)  # a provider that hangs does so for an hour
    # A call without an answer may end a moment before the walk that it takes all the time of.
    assert walked["degraded_reason"] in {reason, "timeout" if reason == "budget_time" else reason}
    assert walked["degraded"]
    assert f"({walked['degraded_reason']}), so this is what words and structure found" in walked["degraded_note"]
    assert "degraded_note" not in plain
    assert walked["root"] == plain["root"]


async def test_what_was_chosen_before_a_failure_is_kept(
    database: Database, provide: Starting, configured: Configuring
) -> None:
    """A walk that breaks off keeps the additions of its earlier turns."""
    await fill(database)

    def script(asked: Asked) -> Answer:
        if asked.number > 1:
            return Answer(status=400)
        return calling(asked, ("choose", {"add": [shown(asked)["further"][0]["id"]]}))

    async with remembering(database, configured(provide(script))) as memory:
        plain = await ask(memory, replace(QUERY, mode="deterministic"))
        walked = await ask(memory, QUERY)
    assert walked["degraded_reason"] == "http_4xx"
    assert len(set(ids_of(walked)) - set(ids_of(plain))) == 1


async def test_one_snapshot_even_when_another_is_published_meanwhile(
    database: Database, provide: Starting, configured: Configuring
) -> None:
    """A build that publishes while the model thinks changes nothing in the answer, and no transaction is open then."""
    await fill(database)
    release = asyncio.Event()
    loop = asyncio.get_running_loop()

    def script(asked: Asked) -> Answer:
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result(PATIENCE_S)
        if asked.number == 1:
            return calling(asked, ("inspect_leaf_refs", {"root": leaf_of(asked)}))
        return calling(asked, ("choose", {"add": [one["id"] for one in last(asked)["events"]], "stop": True}))

    def leaf_of(asked: Asked) -> str:
        return str(next(one["id"] for one in shown(asked)["topics"] if one["kind"] == "leaf"))

    provider = provide(lambda asked: replace(script(asked)))
    async with remembering(database, configured(provider, call_timeout_s=3500, walk_deadline_s=3500)) as memory:
        plain = await ask(memory, replace(QUERY, mode="deterministic"))
        asking = asyncio.create_task(ask(memory, QUERY))
        await until(lambda: provider.asked, "the provider being asked")
        assert memory.database.in_use == 0
        await append(database.server_dsn, [event(2_000_000, "garden tomato seed water bridge")])
        await builds.build(database, full=True)
        release.set()
        walked = await asking
    assert not provider.errors
    assert walked["snapshot_id"] == plain["snapshot_id"]
    assert set(ids_of(plain)) <= set(ids_of(walked))
    assert not walked["degraded"]


def test_a_template_that_cannot_be_used_is_refused_at_start(database: Database) -> None:
    """A memory with a wrong template does not start."""
    with pytest.raises(ConfigurationError):
        Memory(database.server_dsn, replace(Settings(), llm=LlmSettings(template="/nowhere.json")))
