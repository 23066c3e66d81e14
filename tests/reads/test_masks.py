"""Several masks in one request: the answers of one corpus that holds the union of their scopes, each scope once."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from myria import errors
from myria.log.event import NewEvent
from myria.log.masks import Mask, Masks
from myria.memory import Memory
from myria.search import unindexed, visible_blocks
from myria.search.queries import EventNodesQuery, ReferencesQuery
from myria.settings import Settings
from tests.reads.asking import Query, ask, events_of, texts_of, walk
from tests.support.building import build_now
from tests.support.counts import share
from tests.support.events import TENANT, event
from tests.support.postgres import Database

Json = dict[str, Any]

NAMES = ("ann", "bob", "carol", "dan", "org")
WORDS = ("garden", "tomato", "bridge", "river", "bread", "piano", "train", "doctor")
LISTS = 6
ORACLE = "oracle"


def _mask(rng: random.Random) -> Mask:
    return Mask(tuple(rng.sample(NAMES, rng.choice((1, 1, 2, 3)))), exact=rng.random() < 0.4)


class Log:
    """A log that is told twice: as it is, and to a tenant where each list of masks is one more participant.

    There, whoever asks as the participant of a list, under one mask, is to see what the list sees here.
    """

    def __init__(self, memory: Memory, database: Database, rng: random.Random) -> None:
        self.memory = memory
        self.database = database
        self.rng = rng
        self.lists = [Masks.of(_mask(rng) for _ in range(rng.randint(2, 4))) for _ in range(LISTS)]
        self.told = 0
        self.seen: Counter[int] = Counter()

    async def tell(self, count: int) -> None:
        """Append events to both tenants, in one order."""
        for start in range(0, count, 50):
            both: tuple[list[NewEvent], list[NewEvent]] = ([], [])
            for _ in range(min(50, count - start)):
                self._add(*both)
            await self.memory.log.append_events(TENANT, both[0])
            await self.memory.log.append_events(ORACLE, both[1])

    def _add(self, here: list[NewEvent], there: list[NewEvent]) -> None:
        rng = self.rng
        self.told += 1
        people = tuple(rng.sample(NAMES, rng.choice((1, 2, 2, 3))))
        sees = [at for at, masks in enumerate(self.lists) if masks.sees(people)]
        self.seen.update(sees)
        told: Json = {"internal": rng.random() < 0.15, "channel": rng.choice(("chat", "mail"))}
        at, text = rng.randint(0, 20_000) * 30, f"{' '.join(rng.choices(WORDS, k=4))} number {self.told}"
        key = f"key {self.told}"
        here.append(event(at, text, participants=people, key=key, **told))
        there.append(event(at, text, participants=(*people, *(f"lists{at}" for at in sees)), key=key, **told))

    async def build(self) -> None:
        """Compile both tenants."""
        for tenant in (TENANT, ORACLE):
            await build_now(self.database.builder_dsn, tenant=tenant)

    def query(self) -> tuple[Query, Query]:
        """Return a random query under a list of masks, and the oracle's."""
        rng = self.rng
        at = rng.randrange(LISTS)
        common: Json = {
            "query": rng.choice((None, " ".join(rng.sample(WORDS, 2)), "what did carol say about bread")),
            "include_internal": rng.random() < 0.3,
            "channel": rng.choice((None, None, "mail")),
            "order": rng.choice(("relevance", "relevance", "newest")),
        }
        kind: Any = EventNodesQuery
        size = {"limit": rng.randint(1, 40)}
        if rng.random() < 0.4:
            kind, size = ReferencesQuery, {"max_nodes": rng.randint(5, 60)}
        return (
            kind(masks=self.lists[at], **common, **size),
            kind(masks=Masks.containing((f"lists{at}",)), **common, **size),
        )


def _shown(answer: Json) -> list[tuple[str, int, bool]]:
    """Return the text, score and lane of every event of an answer, in its order."""
    return [
        (text, node["score"], node["indexed"]) for text, node in zip(texts_of(answer), events_of(answer), strict=True)
    ]


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(share(40, least=2)))
async def test_several_masks_are_one_corpus(database: Database, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Under a list of masks, order, scores and pages are those of one mask that sees the same: over packed scopes and
    single ones, tail and internal events, after builds and a rollback, and for pages that began before them."""
    rng = random.Random(seed)
    monkeypatch.setattr(visible_blocks, "SHARED_FROM", 1 + 8 * (seed % 2))
    monkeypatch.setattr(unindexed, "FEW_SCOPES", 64 * (seed % 2))
    async with Memory(database.server_dsn, Settings()) as memory:
        log = Log(memory, database, rng)
        begun: list[tuple[Query, Query]] = []
        continued = 0
        for step in range(4):
            await log.tell(rng.randint(20, 60))
            if step != 2:
                await log.build()
            elif seed % 4 == 3:
                for tenant in (TENANT, ORACLE):
                    await memory.registry.rollback(tenant, None)
            asked = [log.query() for _ in range(8)]
            continued += len(begun)
            for query, oracle in [*begun, *asked]:
                answer, right = await ask(memory, query), await ask(memory, oracle, tenant=ORACLE)
                assert _shown(answer) == _shown(right), (seed, query)
                for node in walk(answer["root"]):
                    assert node["kind"] == "root" or query.masks.sees(node["participants"]), (query, node)
                assert (answer["next_cursor"] is None) == (right["next_cursor"] is None)
            begun = [
                (replace(query, cursor=answer["next_cursor"]), replace(oracle, cursor=right["next_cursor"]))
                for query, oracle in asked[:4]
                if (answer := await ask(memory, query))["next_cursor"] is not None
                and (right := await ask(memory, oracle, tenant=ORACLE))["next_cursor"] is not None
            ]
        assert continued > 0
        assert log.seen


async def test_a_cursor_belongs_to_its_list(database: Database) -> None:
    """The same list in another order goes on; any other list, wider or narrower, is refused."""
    ann, bob, org = Mask(("ann",)), Mask(("bob",), exact=True), Mask(("org",))
    async with Memory(database.server_dsn, Settings()) as memory:
        events = [event(at, f"tea {at}", participants=people) for at, people in enumerate([("ann",), ("bob",)] * 3)]
        await memory.log.append_events(TENANT, events)
        query = EventNodesQuery(masks=Masks.of([ann, bob]), query="tea", limit=4)
        first = await ask(memory, query)
        assert first["constraints"]["masks"] == [ann.to_json(), bob.to_json()]
        assert "participants" not in first["constraints"]
        again = replace(query, masks=Masks.of([bob, ann, bob]), cursor=first["next_cursor"])
        assert len(events_of(await ask(memory, again))) == 2
        for other in ([ann], [bob], [ann, bob, org], [ann, Mask(("bob",))], [org, bob]):
            with pytest.raises(errors.CursorInvalid):
                await ask(memory, replace(again, masks=Masks.of(other)))


async def test_look_ups_see_what_the_list_sees(database: Database) -> None:
    """get_event, get_topic and a root find what any mask sees, and nothing beside it."""
    async with Memory(database.server_dsn, Settings()) as memory:
        people = [("ann",), ("ann", "bob"), ("bob",), ("bob", "carol"), ("org",)]
        told = await memory.log.append_events(
            TENANT, [event(100 * at, f"tea {at} {name}", participants=name) for at, name in enumerate(people * 2)]
        )
        await build_now(database.builder_dsn)
        masks = Masks.of([Mask(("ann",)), Mask(("bob",), exact=True), Mask(("dan",), exact=True)])
        topics = {}
        for name in people:
            answer = await ask(memory, ReferencesQuery(masks=Masks.exactly(name), query="tea"))
            (topic,) = {node["topic_id"] for node in answer["root"]["children"]}
            topics[name] = topic
        for name, result in zip(people * 2, told, strict=True):
            looks = (
                memory.retrieval.get_event(TENANT, result.event_id, masks),
                memory.retrieval.get_topic(TENANT, topics[name], masks),
                memory.retrieval.query_references(TENANT, ReferencesQuery(masks=masks, root=topics[name])),
            )
            for look, refusal in zip(looks, (errors.EventNotFound, *[errors.TopicNotFound] * 2), strict=True):
                if masks.sees(name):
                    await look
                else:
                    with pytest.raises(refusal):
                        await look


async def test_an_exact_mask_finds_a_scope_that_comes_later(database: Database) -> None:
    """The scope of exactly these may not be there yet; it is found from its first event on, and after a build."""
    masks = Masks.of([Mask(("ann",), exact=True), Mask(("org",))])
    query = EventNodesQuery(masks=masks, query="tea")
    async with Memory(database.server_dsn, Settings()) as memory:
        await memory.log.append_events(TENANT, [event(0, "tea of both", participants=("ann", "bob"))])
        assert texts_of(await ask(memory, query)) == []
        await memory.log.append_events(TENANT, [event(1, "tea alone", participants=("ann",))])
        assert texts_of(await ask(memory, query)) == ["tea alone"]
        await build_now(database.builder_dsn)
        assert [event["indexed"] for event in events_of(await ask(memory, query))] == [True]
