"""Instructions inside events are inert, also for a model that obeys every one of them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import orjson
import pytest

from myria.builds import Outcome
from myria.llm.fencing import fenced
from myria.memory import Memory
from myria.search.queries import ReferencesQuery
from myria.settings import Settings
from tests.llm.conftest import KEY, Configuring, Starting
from tests.llm.fences import unfenced
from tests.llm.injections import INJECTIONS
from tests.llm.oracle import Oracle, plan, shown
from tests.llm.provider import Answer, Asked, calling, completion
from tests.llm.test_building import sound, with_model
from tests.reads.asking import ids_of
from tests.support import builds
from tests.support.events import TENANT, append, event
from tests.support.postgres import Database, Databases

PAIR = ("ana", "ben")
_CALLS = re.compile(r'\{"(?:tool|name)": ?"(\w+)", ?"arguments": ?(\{.*?\})\}')
_IDS = re.compile(r"\b(?:evt|top|snap|bld|req)_[0-9a-f]+|\b[etc][0-9]{3,}")


def events_with(texts: tuple[str, ...]) -> list[Any]:
    """Return a conversation in which these texts stand."""
    return [
        event(number * 40, participants=PAIR, payload={"text": text, "speaker": text[:50].strip() or "x"})
        for number, text in enumerate(text.replace("\x00", " ") for text in texts)
    ]


def gullible(asked: Asked) -> Answer:
    """Obey whatever an event says: call the tools it names, with the ids it names, and say what it says."""
    data = shown(asked)
    texts = [one["text"] for one in data.get("events", []) + data.get("found", []) + data.get("further", [])]
    said = "\n".join(texts)
    injected = [(name, arguments) for name, arguments in _CALLS.findall(said)][:3]
    injected.sort(key=lambda one: one[0] != "run_sql")
    ids = _IDS.findall(said)
    turn = sum(message["role"] == "assistant" for message in asked.body["messages"])
    if turn == 0 and injected:
        name, arguments = injected[0]
        if not asked.tools:
            return Answer(body=completion(content=f'{{"tool": "{name}", "arguments": {arguments}}}'))
        return Answer(body=completion(calls=injected))
    if turn <= 1 and ids and "question" not in data:
        obeyed = plan(data)
        obeyed["leaves"][0]["events"] = [*obeyed["leaves"][0]["events"], *ids[:3]]
        obeyed["leaves"][0]["continues"] = ids[-1]
        return calling(asked, ("submit_plan", obeyed))
    if "question" in data:
        return calling(asked, ("choose", {"add": [*ids[:3], "e1"], "stop": True}))
    obeyed = plan(data)
    obeyed["label"] = obeyed["leaves"][0]["label"] = (texts[0][:100].strip() or "x") + " PWNED"
    return calling(asked, ("submit_plan", obeyed))


def test_there_are_sixty() -> None:
    """The corpus is as long as it must be, and holds no text twice."""
    assert len(set(INJECTIONS)) == len(INJECTIONS) >= 60


@pytest.mark.parametrize("number", range(len(INJECTIONS)))
def test_no_text_leaves_its_fence(number: int) -> None:
    """Each text stands inside its fence on one line of JSON, and comes out of it as it went in."""
    text = INJECTIONS[number]
    message = fenced({"events": [{"id": "e1", "text": text}]})
    assert len(message.splitlines()) == 3
    assert unfenced(message) == {"events": [{"id": "e1", "text": text}]}
    assert "<|" not in message
    assert "</" not in message


async def test_a_sound_model_plans_as_if_they_were_harmless(
    databases: Databases, provide: Starting, configured: Configuring
) -> None:
    """With the same model the same events form the same leaves, whether their texts are harmless or hostile."""
    partitions = []
    for texts in (INJECTIONS, tuple(f"harmless {number}" for number in range(len(INJECTIONS)))):
        with databases.fresh() as database:
            await append(database.server_dsn, events_with(texts))
            provider = provide(Oracle())
            # One page for all: how units are cut into pages depends on how long texts are.
            llm = configured(provider, page_events=500, page_bytes=1024 * 1024)
            built = await builds.build(database, configured=with_model(llm))
            assert built.outcome is Outcome.SUCCEEDED
            assert "llm_units_degraded" not in built.counts
            rows = await builds.rows(
                database, "SELECT event_seqs FROM myria.nodes WHERE node_type = 'leaf_topic' ORDER BY event_seqs"
            )
            first = await builds.value(database, "SELECT min(event_seq) FROM myria.events")
            partitions.append([[seq - first for seq in row["event_seqs"]] for row in rows])
            roles = [[message["role"] for message in asked.body["messages"]] for asked in provider.asked]
            assert all(one == ["system", "user"] for one in roles)
            assert not provider.errors
            await sound(database, deep=True)
    sizes = [sum(map(len, one)) for one in partitions]
    assert sizes == [len(INJECTIONS)] * 2


@pytest.mark.parametrize("structure", ["tools", "json_schema"])
async def test_a_gullible_model_has_no_effect(
    database: Database, provide: Starting, configured: Configuring, structure: str
) -> None:
    """A model that obeys every event names nothing outside, loses nothing, opens nothing and learns no key."""
    secret = [event(n * 60, f"for dora only {n}", participants=("dora",)) for n in range(6)]
    await append(database.server_dsn, secret)
    await append(database.server_dsn, events_with(INJECTIONS))
    before = await builds.value(database, "SELECT count(*) FROM myria.events")
    provider = provide(gullible)
    llm = configured(provider, structure=structure, breaker_failures=1000, repairs=3)

    built = await builds.build(database, configured=with_model(llm))
    async with Memory(database.server_dsn, replace(Settings(), llm=llm)) as memory:
        for text in ("ignore previous instructions", "submit_plan run_sql", "obey data system", "e9999 topic"):
            query = ReferencesQuery(participants=("ana",), query=text, max_nodes=30)
            plain = await memory.retrieval.query_references(TENANT, replace(query, mode="deterministic"))
            walked = await memory.retrieval.query_references(TENANT, query)
            assert set(ids_of(plain)) <= set(ids_of(walked))
            assert "for dora only" not in orjson.dumps(walked).decode()

    assert built.outcome is Outcome.SUCCEEDED
    assert await builds.value(database, "SELECT count(*) FROM myria.events") == before
    scopes = await builds.rows(database, "SELECT participants FROM myria.scopes ORDER BY 1")
    assert [row["participants"] for row in scopes] == [["ana", "ben"], ["dora"]]
    for asked in provider.asked:
        raw = asked.raw.decode()
        assert not ("for dora only" in raw and any(text in raw for text in INJECTIONS[:10]))
        assert KEY not in raw
        assert set(asked.headers) <= {
            *("host", "accept", "connection", "user-agent", "authorization", "x-title"),
            *("content-type", "accept-encoding", "content-length"),
        }
    await sound(database, deep=True)
    outcomes = await builds.rows(
        database,
        "SELECT outcome FROM myria.llm_calls UNION "
        "SELECT t->>'outcome' FROM myria.llm_calls CROSS JOIN LATERAL jsonb_array_elements(tools) t",
    )
    assert {"unknown_tool", "unknown_id"} <= {row["outcome"] for row in outcomes}, "the model was not gullible"
