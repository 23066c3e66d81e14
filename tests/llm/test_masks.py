"""No prompt and no tool result holds a byte of an event outside the workflow's mask: markers are planted per scope."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

import pytest

from myria.errors import InternalError
from myria.llm.inspection import InspectLeafRefs, Inspector, InspectSubtree, ScopesInForce, Shown, ShownTopic
from myria.log.masks import Masks
from myria.memory import Memory
from myria.search.queries import ReferencesQuery
from myria.settings import Settings
from tests.llm.conftest import Configuring, Starting
from tests.llm.oracle import plan, shown
from tests.llm.provider import Answer, Asked, calling
from tests.llm.test_building import with_model
from tests.llm.test_walking import at_random, seen
from tests.support import builds
from tests.support.building import build_now
from tests.support.counts import share
from tests.support.events import TENANT, append, event
from tests.support.postgres import Database

NAMES = ("ann", "bob", "carol", "dan", "eve")
ROUNDS = share(100)
_MARKER = re.compile(r"zq([0-9]+)qz")


def curious(seed: int) -> Any:
    """Return a provider that looks everywhere it can, and then plans."""
    chosen = random.Random(seed)
    walks = at_random(seed)

    def script(asked: Asked) -> Answer:
        data = shown(asked)
        if "question" in data:
            return walks(asked)
        events, topics = seen(asked)
        if chosen.random() < 0.4:
            return calling(asked, ("fetch_events", {"event_ids": chosen.sample(events, min(3, len(events)))}))
        if topics and chosen.random() < 0.5:
            return calling(asked, ("inspect_subtree", {"root": chosen.choice(topics), "depth": 3}))
        if topics and chosen.random() < 0.3:
            return calling(asked, ("inspect_leaf_refs", {"root": chosen.choice(topics)}))
        return calling(asked, ("submit_plan", plan(data)))

    return script


async def test_a_row_outside_the_mask_is_never_shown(database: Database) -> None:
    """Whatever a statement gives, each row is compared with the mask once more: topics, references and events alike."""
    async with Memory(database.server_dsn, Settings()) as memory:
        await memory.log.append_events(
            TENANT, [event(at, f"beans {at}", participants=("ann", "bob")) for at in range(6)]
        )
        await build_now(database.builder_dsn)
        async with memory.database.read(TENANT) as connection:
            leaf = await connection.fetchrow(
                "SELECT rendering_id, scope_id, topic_id FROM myria.renderings WHERE node_type = 'leaf_topic'"
            )
            event_seq = await connection.fetchval("SELECT min(event_seq) FROM myria.events")
        assert leaf is not None
        scope = leaf["scope_id"]
        right = ScopesInForce(masks=Masks.containing(("ann",)), scopes={scope: ("ann", "bob")}, cutoff=2**60)
        masks = {
            "right": right,
            "the scope of others": replace(right, scopes={scope: ("ann", "carol")}),
            "not who asked": replace(right, masks=Masks.containing(("carol",))),
            "not the one scope of a build": replace(right, masks=Masks.exactly(("ann",))),
        }
        for name, mask in masks.items():
            shown = Shown()
            inspector = Inspector(memory.database, TENANT, mask, shown, most_bytes=10_000)
            path = (leaf["rendering_id"],)
            alias = shown.topic(ShownTopic(scope_id=scope, path=path, topic_id=leaf["topic_id"], is_leaf=True))
            answers = []
            for look in (
                inspector.describe([path]),
                inspector.run(InspectSubtree(root=alias)),
                inspector.run(InspectLeafRefs(root=alias)),
                inspector.events([event_seq]),
            ):
                try:
                    answers.append(await look)
                except InternalError:
                    assert name != "right"
            assert len(answers) == (4 if name == "right" else 0), name


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_not_one_byte_outside_the_mask(
    database: Database, provide: Starting, configured: Configuring, seed: int
) -> None:
    """Over random scopes, builds and walks, each prompt holds markers of the scopes in force and of no other."""
    assert await _one_round(database, provide, configured, random.Random(seed)) > 10


async def _one_round(database: Any, provide: Starting, configured: Configuring, rng: random.Random) -> int:
    scopes = sorted({tuple(sorted(rng.sample(NAMES, rng.randint(1, 4)))) for _ in range(4)})
    provider = provide(curious(rng.randrange(10**6)))
    llm = configured(provider, unit_rounds=10, walk_rounds=5, breaker_failures=1000)
    moment = 0
    checked = 0
    for _ in range(2):
        for number, scope in enumerate(scopes):
            events = []
            for _ in range(rng.randint(2, 12)):
                moment += rng.choice((20, 60, 4000))
                text = f"zq{number}qz " + " ".join(rng.choices(("tea", "boat", "garden", "letter"), k=3))
                payload = {"text": text, "speaker": f"zq{number}qz speaker", "more": {"deep": f"zq{number}qz"}}
                internal = rng.random() < 0.1
                if internal:
                    payload["text"] = "zq999qz internal"
                events.append(event(moment, participants=scope, payload=payload, internal=internal))
            await append(database.server_dsn, events)
        before = len(provider.asked)
        await builds.build(database, configured=with_model(llm))
        for asked in provider.asked[before:]:
            found = {int(number) for number in _MARKER.findall(asked.raw.decode())}
            assert len(found) == 1, "a build's prompt mixes scopes"
            (only,) = found
            assert only < len(scopes), "an internal event was shown"
            outside = set(NAMES) - set(scopes[only])
            assert not [name for name in outside if f'"{name}"' in asked.raw.decode()]
            checked += 1
    async with Memory(database.server_dsn, replace(Settings(), llm=llm)) as memory:
        for _ in range(4):
            asks = tuple(sorted(rng.sample(NAMES, rng.randint(1, 2))))
            may_see = {number for number, scope in enumerate(scopes) if set(asks) <= set(scope)}
            before = len(provider.asked)
            query = ReferencesQuery(participants=asks, query=rng.choice(("tea boat", "garden")), max_nodes=20)
            answer = await memory.retrieval.query_references(TENANT, query)
            assert "walk" in answer
            for asked in provider.asked[before:]:
                found = {int(number) for number in _MARKER.findall(asked.raw.decode())}
                assert found <= may_see, "a walk's prompt shows what the asker may not see"
                checked += 1
        assert memory.retrieval.walker is not None
        await memory.retrieval.walker.settle()
    calls = await builds.rows(database, "SELECT mask, prompt, tools, workflow FROM myria.llm_calls")
    assert len(calls) == len(provider.asked)
    for call in calls:
        allowed = {
            number
            for number, scope in enumerate(scopes)
            if (set(call["mask"]) == set(scope) if call["workflow"] == "build" else set(call["mask"]) <= set(scope))
        }
        assert {int(number) for number in _MARKER.findall(call["prompt"] + call["tools"])} <= allowed
    assert not provider.errors
    return checked
