"""What a question gets for an answer: both lanes, filters, bounds, order, determinism (§14-§17)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson
import pytest

from myria import errors
from myria.log.event import parse_event
from myria.log.limits import Limits
from myria.log.masks import Masks
from myria.log.payloads import TopicHint
from myria.memory import Memory
from myria.search.queries import EventNodesQuery, ReferencesQuery
from myria.settings import Settings
from myria_server.api import answers
from tests.reads.asking import ANA_BEN, append, ask, events_of, ids_of, pages, texts_of, walk
from tests.support.building import build_now
from tests.support.events import START, TENANT, conversation, event
from tests.support.postgres import Database, Databases

DAY = 24 * 3600


async def _mixed(database: Database) -> None:
    """Two scopes with a snapshot, a tail past it, and internal events on both sides of the cutoff."""
    async with Memory(database.server_dsn, Settings()) as memory:
        await append(memory, conversation(120, seed=1, internal_share=0.1))
        await append(memory, conversation(60, seed=2, participants=("ana", "ben", "carol"), start=20_000))
        await build_now(database.builder_dsn)
        await append(memory, conversation(30, seed=3, start=400_000, internal_share=0.1))


@pytest.fixture(scope="module")
def filled(databases: Databases) -> Iterator[Database]:
    """A database of `_mixed`, to be copied."""
    database = databases.create()
    databases.loop.run(_mixed(database))
    yield database
    databases.drop(database)


@pytest.fixture
def mixed() -> None:
    """Asks for a database that is filled already."""


@pytest.fixture
def database(request: pytest.FixtureRequest, databases: Databases) -> Iterator[Database]:
    """A database for one test, empty unless it asks for `mixed`."""
    wants_mixed = "mixed" in request.fixturenames
    fresh = databases.copy(request.getfixturevalue("filled")) if wants_mixed else databases.create()
    yield fresh
    databases.drop(fresh)


MIXED = pytest.mark.usefixtures("mixed")


async def test_what_was_appended_is_read_at_once(memory: Memory, database: Database) -> None:
    """Read-your-writes: right after its acknowledgement an event is found by its words, snapshot or none."""
    for number, word in enumerate(("zeppelin", "quasar", "müsli", "東京", "xylophone", "привет")):
        if number == 3:
            await build_now(database.builder_dsn)
        (result,) = await append(memory, [event(number, f"we heard of {word} today")])
        for query in (
            EventNodesQuery(participants=ANA_BEN, query=word),
            ReferencesQuery(participants=("ben",), query=f"{word.title()}?"),
        ):
            answer = await ask(memory, query)
            best = max(events_of(answer), key=lambda one: one["score"])  # its neighbours follow
            assert best["event_id"] == result.event_id
            assert not best["indexed"]


@MIXED
async def test_nothing_in_common_is_an_empty_tree(memory: Memory, database: Database) -> None:
    """A query without a lexical match gives a root without children, which carries the query's participants."""
    for query in (
        EventNodesQuery(participants=ANA_BEN, query="zeppelin xylophone"),
        ReferencesQuery(participants=("ana",), query="zeppelin"),
        ReferencesQuery(participants=("nobody",)),
    ):
        answer = await ask(memory, query)
        assert answer["root"]["children"] == []
        assert answer["root"]["participants"] == list(query.masks.participants)
        assert (answer["truncated"], answer["next_cursor"]) == (False, None)


@MIXED
@pytest.mark.parametrize("text", [None, "", "   ", "?!"])
async def test_no_query_means_most_recent_first(memory: Memory, database: Database, text: str | None) -> None:
    """Without words the newest events come first, over both lanes and all visible scopes."""
    answer = await ask(memory, EventNodesQuery(participants=("ana",), query=text, limit=200))
    if text == "?!":
        assert ids_of(answer) == [] or len(ids_of(answer)) > 150
        return
    keys = [(one["timestamp"], one["event_seq"]) for one in events_of(answer)]
    assert len(keys) > 150
    assert [stamp for stamp, _ in keys] == sorted((stamp for stamp, _ in keys), reverse=True)


@MIXED
@pytest.mark.parametrize("order", ["newest", "oldest"])
async def test_orders_by_time_hold_over_both_lanes(memory: Memory, database: Database, order: Any) -> None:
    """newest and oldest order what matches by (timestamp, event_seq), page after page."""
    query = EventNodesQuery(participants=("ana",), query="garden tomato", order=order, limit=7)
    found = [one for page in await pages(memory, query) for one in events_of(page)]
    keys = [(one["timestamp"], one["event_seq"]) for one in found]
    assert len(keys) > 7
    assert keys == sorted(keys, reverse=order == "newest")
    assert {one["indexed"] for one in found} == {True, False}
    by_score = await ask(memory, replace(query, order="relevance", limit=200))
    assert {one["event_id"] for one in found} <= set(ids_of(by_score))


@MIXED
async def test_relevance_is_by_score_then_event_seq(memory: Memory, database: Database) -> None:
    """Scores never rise down the list, and equal ones stand in order of event_seq."""
    await append(memory, [event(500_000 + number * 4000, "twice the very same words") for number in range(6)])
    for text in ("garden tomato bread", "the same words"):
        query = EventNodesQuery(participants=ANA_BEN, query=text, limit=9)
        keys = [(-one["score"], one["event_seq"]) for page in await pages(memory, query) for one in events_of(page)]
        assert keys == sorted(keys)
        assert all(isinstance(score, int) for score, _ in keys)


async def test_filters_filter(memory: Memory, database: Database) -> None:
    """types, channel, context_id, since and until keep exactly the events they describe, in both lanes."""
    rng = random.Random(3)
    made = [
        event(
            number * 600,
            "garden talk",
            channel=rng.choice(("chat", "mail")),
            type=rng.choice((None, "message", "tool_result", "task_update")),
            context_id=rng.choice((None, "one", "two")),
        )
        for number in range(60)
    ]
    results = await append(memory, made[:40])
    await build_now(database.builder_dsn)
    results += await append(memory, made[40:])
    ids = {id(one): result.event_id for one, result in zip(made, results, strict=True)}
    since, until = made[10].timestamp, made[50].timestamp
    cases: list[tuple[dict[str, Any], Any]] = [
        ({"channel": "chat"}, lambda one: one.channel == "chat"),
        ({"types": ("message", "task_update")}, lambda one: one.type in ("message", "task_update")),
        ({"context_id": "two"}, lambda one: one.context_id == "two"),
        ({"since": since}, lambda one: one.timestamp >= since),
        ({"until": until}, lambda one: one.timestamp < until),
        (
            {"since": since, "until": until, "channel": "mail", "types": ("message",), "context_id": "one"},
            lambda one: (
                since <= one.timestamp < until and (one.channel, one.type, one.context_id) == ("mail", "message", "one")
            ),
        ),
        ({"types": ("unheard of",)}, lambda _: False),
        ({"channel": "unheard of"}, lambda _: False),
    ]
    for fields, keeps in cases:
        wanted = {ids[id(one)] for one in made if keeps(one)}
        for text in (None, "garden"):
            found = await ask(memory, EventNodesQuery(participants=ANA_BEN, query=text, limit=200, **fields))
            assert set(ids_of(found)) == wanted, (fields, text)
            tree = await ask(memory, ReferencesQuery(participants=ANA_BEN, query=text, max_nodes=500, **fields))
            assert set(ids_of(tree)) == wanted, (fields, text)


async def test_internal_events_show_only_when_asked_for(memory: Memory, database: Database) -> None:
    """Below or above the cutoff, internal events appear with include_internal alone, never indexed, in no topic."""
    results = await append(
        memory,
        [event(1, "garden below"), event(2, "garden below internal", internal=True), event(3, "garden also below")],
    )
    await build_now(database.builder_dsn)
    results += await append(memory, [event(4, "garden above"), event(5, "garden above internal", internal=True)])
    internal = {results[1].event_id, results[4].event_id}
    for text in (None, "garden", "internal"):
        for kind in (EventNodesQuery, ReferencesQuery):
            query = kind(participants=ANA_BEN, query=text)
            hidden = await ask(memory, query)
            assert not internal & set(ids_of(hidden))
            shown = await ask(memory, replace(query, include_internal=True))
            assert internal <= set(ids_of(shown))
            assert {one["event_id"] for one in events_of(shown) if one["internal"]} == internal
            for one in events_of(shown):
                if one["internal"]:
                    assert (one["kind"], one["indexed"]) == ("event", False)
    assert (await memory.registry.status(TENANT))["tail_events"] == 1
    with pytest.raises(errors.EventNotFound):
        await memory.retrieval.get_event(TENANT, results[1].event_id, Masks.containing(ANA_BEN))
    found = await memory.retrieval.get_event(
        TENANT, results[1].event_id, Masks.containing(ANA_BEN), include_internal=True
    )
    answers.EventAnswer.model_validate(found)
    assert (found["event"]["internal"], found["event"]["indexed"]) == (True, False)


async def test_a_hidden_internal_event_leaves_no_trace_in_scores(memory: Memory, database: Database) -> None:
    """Answers without internal events are the same, score for score, whether or not internal ones are stored."""
    await append(memory, conversation(40, seed=1))
    await build_now(database.builder_dsn)
    await append(memory, conversation(10, seed=2, start=90_000))
    query = EventNodesQuery(participants=ANA_BEN, query="garden tomato bread", limit=200)
    before = await ask(memory, query)
    await append(memory, [event(at, "garden tomato garden", internal=True) for at in (10, 500, 90_050)])
    assert await ask(memory, query) == before


async def test_payloads_and_snippets(memory: Memory, database: Database) -> None:
    """Event nodes carry the whole payload; references a short snippet around what was asked, or the payload."""
    long = "padding " * 200 + "the needle is here " + "more " * 200
    payload = {"text": long, "speaker": "Ana", "nested": {"a": [1, 2.5, None, True]}}
    await append(memory, [event(1, payload=payload, topic_hints=[{"hint": "sewing", "confidence": 0.5}])])
    await append(memory, [event(2, "nothing to see")])
    await build_now(database.builder_dsn)
    nodes = await ask(memory, EventNodesQuery(participants=ANA_BEN, query="needle"))
    assert events_of(nodes)[0]["payload"] == payload
    assert events_of(nodes)[0]["topic_hints"] == [{"hint": "sewing", "confidence": 0.5}]
    (short, *_) = events_of(await ask(memory, ReferencesQuery(participants=ANA_BEN, query="needle")))
    assert "needle" in short["snippet"]
    assert len(short["snippet"]) < 300
    assert "payload" not in short
    (whole, *_) = events_of(
        await ask(memory, ReferencesQuery(participants=ANA_BEN, query="needle", include_payload=True))
    )
    assert whole["payload"] == payload
    assert "snippet" not in whole


async def test_hints_prefer_and_never_exclude(memory: Memory, database: Database) -> None:
    """A topic hint in common lifts an event above its equal; events without it are still there."""
    hinted = [{"hint": "spring planting", "confidence": 0.9}]
    results = await append(
        memory,
        [
            event(0, "we talk about the garden"),
            event(2 * DAY, "we talk about the garden", topic_hints=hinted),
            event(4 * DAY, "we talk about the garden"),
        ],
    )
    for _ in range(2):
        query = EventNodesQuery(participants=ANA_BEN, query="garden")
        plain = await ask(memory, query)
        hints = (TopicHint(hint="spring planting", confidence=1.0),)
        boosted = await ask(memory, replace(query, topic_hints=hints))
        assert set(ids_of(plain)) == set(ids_of(boosted)) == {result.event_id for result in results}
        assert ids_of(boosted)[0] == results[1].event_id
        await build_now(database.builder_dsn)


@pytest.mark.parametrize("query", ["kiln", "Kiln repair", "the repair?"])
async def test_the_word_of_a_topic_hint_finds_its_event(memory: Memory, database: Database, query: str) -> None:
    """In the fresh tail as in the index, though the text has no such word; events without the hint stay away."""
    hinted = [{"hint": "kiln repair", "confidence": 0.9}]
    (result, *_) = await append(
        memory,
        [event(0, "it broke again", topic_hints=hinted), event(9 * DAY, "bread went up", context_id="other")],
    )
    for asked in (EventNodesQuery, ReferencesQuery):
        assert ids_of(await ask(memory, asked(participants=ANA_BEN, query=query))) == [result.event_id]
    await build_now(database.builder_dsn)
    for asked in (EventNodesQuery, ReferencesQuery):
        assert ids_of(await ask(memory, asked(participants=ANA_BEN, query=query)))[0] == result.event_id


async def test_what_a_picture_shows_finds_its_event_and_is_shown(memory: Memory, database: Database) -> None:
    """In the fresh tail as in the index; of a long text the snippet shows the caption; nobody else finds it."""
    (result, *_) = await append(
        memory,
        [
            event(0, payload={"text": "By the way, look at this. " * 20, "media": [{"alt": "a heron in the reeds"}]}),
            event(9 * DAY, "bread went up", context_id="other"),
        ],
    )
    query = ReferencesQuery(participants=ANA_BEN, query="the photo of the heron")
    fresh = await ask(memory, query)
    await build_now(database.builder_dsn)
    built = await ask(memory, query)
    for answer in (fresh, built):
        found = events_of(answer)[0]
        assert found["event_id"] == result.event_id
        assert found["snippet"].endswith("look at this. [a heron in the reeds]")
    assert ids_of(await ask(memory, ReferencesQuery(participants=("zoe",), query="the photo of the heron"))) == []


@MIXED
async def test_a_reference_tree_says_where_things_are(memory: Memory, database: Database) -> None:
    """Topics with labels and spans lead to references; fresh events hang under the root; spans cover what is below."""
    answer = await ask(memory, ReferencesQuery(participants=("ana",), query="garden tomato bread", max_nodes=200))
    assert {child["kind"] for child in answer["root"]["children"]} >= {"internal_topic", "event"}
    for node in walk(answer["root"]):
        if node["kind"] not in ("internal_topic", "leaf_topic"):
            continue
        assert node["label"]
        assert node["summary"]
        assert node["children"]
        assert node["first_at"] <= node["last_at"]
        for child in node["children"]:
            assert child["kind"] == "event_ref" or node["kind"] == "internal_topic"
            low, high = (child["timestamp"],) * 2 if "timestamp" in child else (child["first_at"], child["last_at"])
            assert node["first_at"] <= low <= high <= node["last_at"]


@MIXED
@pytest.mark.parametrize("max_nodes", [1, 2, 3, 10, 37, 500])
async def test_max_nodes_counts_every_node(memory: Memory, database: Database, max_nodes: int) -> None:
    """No page holds more nodes than asked for, the root included, and the pages together hold everything once."""
    query = ReferencesQuery(participants=("ana",), query="garden tomato", max_nodes=max_nodes)
    if max_nodes < 10:
        answer = await ask(memory, query)
        assert answer["counts"]["nodes"] <= max_nodes
        assert answer["truncated"]
        return
    found = await pages(memory, query)
    assert all(page["counts"]["nodes"] <= max_nodes for page in found)
    ids = [event_id for page in found for event_id in ids_of(page)]
    assert len(ids) == len(set(ids))
    whole = await ask(memory, EventNodesQuery(participants=("ana",), query="garden tomato", limit=200))
    assert set(ids) == set(ids_of(whole))


@MIXED
@pytest.mark.parametrize("max_depth", [1, 2, 3, 64])
async def test_max_depth_cuts_and_says_so(memory: Memory, database: Database, max_depth: int) -> None:
    """Nothing stands deeper than max_depth below the root, and a cut answer says that it is truncated."""
    query = ReferencesQuery(participants=ANA_BEN, query="garden tomato", max_depth=max_depth, max_nodes=500)
    answer = await ask(memory, query)

    def depth(node: dict[str, Any]) -> int:
        return max((1 + depth(child) for child in node.get("children", ())), default=0)

    assert depth(answer["root"]) <= max_depth
    whole = await ask(memory, replace(query, max_depth=None))
    assert answer["truncated"] == (depth(whole["root"]) > max_depth)


@MIXED
@pytest.mark.parametrize("kind", [EventNodesQuery, ReferencesQuery])
@pytest.mark.parametrize("max_tokens", [1, 150, 400, 700, 1000, 2000, 10_000])
async def test_max_tokens_bounds_the_answer(memory: Memory, database: Database, kind: Any, max_tokens: int) -> None:
    """An answer's JSON has at most max_tokens times four characters, and its pages still hold everything."""
    wide = {"limit": 200} if kind is EventNodesQuery else {"max_nodes": 500}
    query = kind(participants=("ana",), query="garden tomato", max_tokens=max_tokens, **wide)
    found = await pages(memory, query)
    for page in found:
        assert max_tokens < 700 or len(orjson.dumps(page).decode()) <= 4 * max_tokens
    ids = [event_id for page in found for event_id in (*ids_of(page), *page.get("skipped", {}).get("event_ids", ()))]
    if max_tokens >= 1000:
        assert not any("skipped" in page for page in found)
    whole = await ask(memory, EventNodesQuery(participants=("ana",), query="garden tomato", limit=200))
    assert sorted(ids) == sorted(ids_of(whole))


@pytest.mark.parametrize("kind", [EventNodesQuery, ReferencesQuery])
@pytest.mark.parametrize("bound", ["tokens", "bytes"])
async def test_large_events_are_shortened_and_none_is_out_of_reach(
    memory: Memory, database: Database, kind: Any, bound: str
) -> None:
    """What fits on no page comes as a snippet around the words, with its size; pages keep the bound."""
    large = "blah " * 3_000 + "the zeppelin landed " + "blah " * 37_500
    await append(memory, [event(number, f"zeppelin number {number}") for number in range(8)])
    await append(memory, [event(20, large), event(21, "zeppelin at last"), event(22, large[::-1] + " zeppelin")])
    await build_now(database.builder_dsn)
    await append(memory, [event(40, large), event(41, "zeppelin again")])
    settings = Settings.load(environ={}, overrides={"retrieval.answer_bytes": 40_000})
    query = kind(participants=("ana",), query="zeppelin", max_tokens=10_000 if bound == "tokens" else None)
    if kind is ReferencesQuery:
        query = replace(query, include_payload=True)
    async with Memory(database.server_dsn, Settings() if bound == "tokens" else settings) as bounded:
        found = await pages(bounded, query)
        again = await pages(bounded, query)
        shown = [one for page in found for one in events_of(page)]
        marked = [one for one in shown if one.get("truncated")]
        whole = await bounded.retrieval.get_event(TENANT, marked[0]["event_id"], Masks.containing(("ana",)))

    assert found == again
    assert all(len(orjson.dumps(page)) <= 40_000 for page in found)
    assert len({one["event_id"] for one in shown}) == len(shown) == 13
    assert not any("skipped" in page for page in found)
    assert len(marked) == 3
    assert all(one["payload_bytes"] > 200_000 and "payload" not in one for one in marked)
    assert any("zeppelin landed" in one["snippet"] for one in marked)
    assert whole["event"]["payload"]["text"] in (large, large[::-1] + " zeppelin")


async def test_an_answer_has_an_end_whatever_the_limit(memory: Memory) -> None:
    """40 events of 200 KB each are several pages of at most a mebibyte, and all of them are shown whole."""
    text = "zeppelin " * 22_000
    await append(memory, [event(number, text) for number in range(40)])
    found = await pages(memory, EventNodesQuery(participants=("ana",), query="zeppelin", limit=200))

    assert all(len(orjson.dumps(page)) <= 1024 * 1024 for page in found)
    assert {len(one["payload"]["text"]) for page in found for one in events_of(page)} == {len(text)}
    assert sum(len(ids_of(page)) for page in found) == 40


@MIXED
async def test_a_root_selects_one_subtree(memory: Memory, database: Database) -> None:
    """By topic_id or node_id, an answer holds exactly the events below that topic, and no fresh ones."""
    whole = await ask(memory, ReferencesQuery(participants=("ana",), max_nodes=500))
    topics = [node for node in walk(whole["root"]) if node["kind"].endswith("_topic")]
    assert len(topics) > 10
    for topic in random.Random(1).sample(topics, 10):
        by_topic = await ask(memory, ReferencesQuery(participants=("ana",), root=topic["topic_id"], max_nodes=500))
        by_node = await ask(memory, ReferencesQuery(participants=("ana",), root=topic["node_id"], max_nodes=500))
        assert ids_of(by_topic) == ids_of(by_node)
        assert len(ids_of(by_topic)) == topic["counts"]["events"]
        assert [child["topic_id"] for child in by_topic["root"]["children"]] == [topic["topic_id"]]
        assert all(one["indexed"] for one in events_of(by_topic))
        below = {one["event_id"] for one in walk(topic) if "event_id" in one}
        assert below <= set(ids_of(by_topic))
        words = texts_of(by_topic)[0].split()[-1]
        some = await ask(memory, ReferencesQuery(participants=("ana",), root=topic["topic_id"], query=words))
        assert set(ids_of(some)) <= set(ids_of(by_topic))
        assert ids_of(some)
        shallow = await ask(memory, ReferencesQuery(participants=("ana",), root=topic["topic_id"], max_depth=1))
        assert [child["topic_id"] for child in shallow["root"]["children"]] == [topic["topic_id"]]
    for root in ("top_none", "00" * 32, "zz", ""):
        with pytest.raises(errors.TopicNotFound):
            await ask(memory, ReferencesQuery(participants=("ana",), root=root))


@MIXED
async def test_a_topic_tells_its_place(memory: Memory, database: Database) -> None:
    """get_topic names parent and children that are each other's, and answers to exactly those who may see it."""
    whole = await ask(memory, ReferencesQuery(participants=("ana", "carol"), max_nodes=500))
    (top,) = [child for child in whole["root"]["children"] if child["kind"] == "internal_topic"]
    record = await memory.retrieval.get_topic(TENANT, top["topic_id"], Masks.containing(("ana",)))
    answers.TopicAnswer.model_validate(record)
    assert record["topic"]["parent_topic_id"] is None
    assert record["topic"]["state"] == "active"
    assert record["topic"]["context_id"] is None
    seen = 0
    for child_id in record["topic"]["children"]:
        child = (await memory.retrieval.get_topic(TENANT, child_id, Masks.containing(("carol",))))["topic"]
        assert child["parent_topic_id"] == top["topic_id"]
        assert child["participants"] == ["ana", "ben", "carol"]
        seen += child["counts"]["events"]
    assert seen == record["topic"]["counts"]["events"] == 60
    for asked in ("top_none", top["topic_id"]):
        with pytest.raises(errors.TopicNotFound):
            await memory.retrieval.get_topic(TENANT, asked, Masks.containing(("ana", "stranger")))


@pytest.mark.parametrize(
    ("contexts", "shared"),
    [(("a", "a", "a"), "a"), (("a", "b", "a"), None), (("a", None, "a"), None), ((None, None, None), None)],
)
async def test_a_topic_tells_the_context_that_all_its_events_share(
    memory: Memory, database: Database, contexts: tuple[str | None, ...], shared: str | None
) -> None:
    """None where they differ or one has none; what was withdrawn since counts no more."""
    kept = await append(memory, [event(at, "garden", context_id=context) for at, context in enumerate(contexts)])
    await build_now(database.builder_dsn)
    (topic,) = (await ask(memory, ReferencesQuery(participants=ANA_BEN)))["root"]["children"]

    async def told() -> str | None:
        record = await memory.retrieval.get_topic(TENANT, topic["topic_id"], Masks.containing(ANA_BEN))
        answers.TopicAnswer.model_validate(record)
        context: str | None = record["topic"]["context_id"]
        return context

    assert await told() == shared
    await memory.withdrawals.withdraw(TENANT, [kept[1].event_id], "forgotten", may_see=lambda _: True)
    assert await told() == contexts[0]


async def test_topics_grow_dormant_and_archived_with_the_newest_event(memory: Memory, database: Database) -> None:
    """A topic's state is computed on read from the newest visible event, not stored."""
    await append(memory, [event(0, "garden one"), event(60, "garden two")])
    await build_now(database.builder_dsn)
    topic = (await ask(memory, ReferencesQuery(participants=ANA_BEN)))["root"]["children"][0]["topic_id"]
    for days, state in ((1, "active"), (20, "dormant"), (120, "archived")):
        await append(memory, [event(days * DAY, "later")])
        record = (await memory.retrieval.get_topic(TENANT, topic, Masks.containing(ANA_BEN)))["topic"]
        assert (record["state"], record["merged_into"]) == (state, None)


async def test_a_merged_topic_says_where_it_went(memory: Memory, database: Database) -> None:
    """When a late event joins two segments, the younger topic is archived and names the older, which lives on."""
    minutes = {"a1": 0, "a2": 1, "b1": 50, "b2": 51}
    await _import(memory, minutes)
    await build_now(database.builder_dsn)
    answer = await ask(memory, ReferencesQuery(participants=ANA_BEN, query="word"))
    topics = {
        one["snippet"].split()[0]: node["topic_id"]
        for node in walk(answer["root"])
        if node["kind"] == "leaf_topic"
        for one in node["children"]
    }
    assert topics["a1"] == topics["a2"] != topics["b1"] == topics["b2"]
    await _import(memory, {"late": 25})
    await build_now(database.builder_dsn)
    gone = (await memory.retrieval.get_topic(TENANT, topics["b1"], Masks.containing(ANA_BEN)))["topic"]
    assert (gone["state"], gone["merged_into"]) == ("archived", topics["a1"])
    older = (await memory.retrieval.get_topic(TENANT, topics["a1"], Masks.containing(ANA_BEN)))["topic"]
    assert (older["state"], older["merged_into"], older["counts"]["events"]) == ("active", None, 5)
    answers.TopicAnswer.model_validate(
        await memory.retrieval.get_topic(TENANT, topics["b1"], Masks.containing(ANA_BEN))
    )
    with pytest.raises(errors.TopicNotFound):
        await memory.retrieval.get_topic(TENANT, topics["b1"], Masks.containing(("carol",)))


async def _import(memory: Memory, minutes: dict[str, int]) -> None:
    """Append events whose ids are given, so that no boundary depends on a random one."""
    events = []
    for name, minute in minutes.items():
        one = {
            "event_id": f"evt_{name.encode().hex():0>32}",
            "timestamp": f"2026-01-01T{minute // 60:02d}:{minute % 60:02d}:00Z",
            "channel": "test",
            "participants": list(ANA_BEN),
            "payload": {"text": f"{name} word"},
        }
        events.append(parse_event(one, Limits(), importing=True))
    await memory.log.import_events(TENANT, events)


async def test_a_backdated_event_is_fresh_and_in_its_place(memory: Memory, database: Database) -> None:
    """An event of long ago that arrives after the snapshot is in the tail, first among the oldest, then indexed."""
    await append(memory, conversation(30, seed=1, start=DAY))
    await build_now(database.builder_dsn)
    (late,) = await append(memory, [event(5, "long ago we planted garden beans")])
    query = EventNodesQuery(participants=ANA_BEN, order="oldest", limit=5)
    (first, *_) = events_of(await ask(memory, query))
    assert (first["event_id"], first["indexed"]) == (late.event_id, False)
    assert ids_of(await ask(memory, EventNodesQuery(participants=ANA_BEN, until=START + 10_000_000))) == [late.event_id]
    await build_now(database.builder_dsn)
    (first, *_) = events_of(await ask(memory, query))
    assert (first["event_id"], first["indexed"]) == (late.event_id, True)


@MIXED
async def test_the_same_question_gets_the_same_bytes(memory: Memory, database: Database) -> None:
    """Same snapshot, tail and question: byte-identical, from a warm server, a cold one, and one that saw it grow."""
    questions: list[Any] = [
        EventNodesQuery(participants=("ana",), limit=50),
        EventNodesQuery(participants=("ana",), query="What did Ana say about the garden?", limit=50),
        EventNodesQuery(participants=ANA_BEN, query="tomato yesterday", include_internal=True, limit=50),
        ReferencesQuery(participants=("ana",), query="garden lesson bread", max_nodes=120),
        ReferencesQuery(participants=("ben",), include_internal=True, max_nodes=300, max_tokens=9000),
    ]

    async def told(by: Memory) -> list[bytes]:
        found = []
        for question in questions:
            answer = await ask(by, question)
            # A cursor says when its first page was asked for.
            found.append(orjson.dumps({**answer, "next_cursor": answer["next_cursor"] is not None}))
        return found

    async with Memory(database.server_dsn, Settings()) as grown:
        for number in range(12):
            await append(memory, conversation(3, seed=30 + number, start=500_000 + 5000 * number, internal_share=0.2))
            await told(grown)
            if number == 5:
                await build_now(database.builder_dsn)
        async with Memory(database.server_dsn, Settings()) as cold:
            first = await told(cold)
            assert await told(cold) == first
            assert await told(grown) == first
            assert await told(memory) == first
