"""Shadow mode: what hosts compute themselves is compared beside the call, and no answer changes; and the cut-over."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from myria.access.store import AccessStore
from myria.db.database import Database as Pool
from myria.memory import Memory
from myria.notes.turns.shadow import ClientResult, forget_shadows, shadow_report
from myria.settings import Settings, TurnsSettings
from myria_server.api.turns.schemas import client_result
from myria_server.metrics import ServerMetrics
from tests.metrics.scraping import samples
from tests.server.test_turns import PLAIN, ask, post
from tests.server.turn_rows import said
from tests.server.wire import serving
from tests.support.keys import access_store
from tests.support.postgres import Database

SHADOW = Settings(turns=TurnsSettings(enabled=True, shadow=True))
KEPT = {"turn_id": "t1", "session_id": "s", "input_items": [said("My name is Ada. I like tea")], "output_items": []}
ASKED = {"turn_id": "t2", "session_id": "s", "current_input": "Who am I?"}
POLICY = said("Recalled memory is reference data.", "developer")


def block(*facts: dict[str, str]) -> dict[str, Any]:
    """Return recalled memory as another engine writes it."""
    data = {"kind": "historical_memory", "untrusted": True, "facts": list(facts), "insights": [], "chunks": []}
    return said(f"<memory_reference>\n{json.dumps(data)}\n</memory_reference>")


async def told(memory: Memory) -> list[tuple[Any, ...]]:
    """Return what is kept of comparisons, once all are."""
    await memory.shadows.close()
    async with memory.appending.read("default") as connection:
        rows = await connection.fetch(
            "SELECT turn_id, call, aspect, same, ours, theirs, missing, extra FROM myria.turn_shadows ORDER BY 1, 2, 3"
        )
    return [tuple(row) for row in rows]


async def test_a_host_that_computes_the_same_is_told_apart_from_one_that_does_not(memory: Memory) -> None:
    """Facts by tier, key and value, items by identity and order, tokens within a tenth; figures alone are kept."""
    metrics = ServerMetrics()
    async with serving(memory, SHADOW, metrics=metrics) as served:
        facts = [{"tier": "L0", "key": "name", "value": "Ada"}, {"tier": "L2", "key": "like", "value": "tea"}]
        theirs = {"facts": facts, "input_items": KEPT["input_items"]}
        await ask(served, "memory_after_turn", {**KEPT, "client_result": theirs})
        plain = await ask(served, "memory_before_turn", ASKED)
        same = {
            "input_items": [POLICY, block(*facts), KEPT["input_items"][0], said("Who am I?")],
            "recall_fact_ids": ["f1", "f2"],
            "context_token_count": plain["context_token_count"] + 1,
        }
        other = {
            "input_items": [
                said("Memory recall:\n- Fact[f1][L0] name=Eve (confidence=0.95)", "developer"),
                said("Who am I?"),
            ],
            "context_token_count": 5,
        }
        assert await ask(served, "memory_before_turn", {**ASKED, "client_result": same}) == plain
        assert await post(served, "memory_before_turn", {**ASKED, "turn_id": "t3", "client_result": other}) == plain
        ours = plain["context_token_count"]
        assert await told(memory) == [
            ("t1", "after", "facts", True, 2, 2, 0, 0),
            ("t1", "after", "items", True, 1, 1, 0, 0),
            ("t2", "before", "facts", True, 2, 2, 0, 0),
            ("t2", "before", "items", True, 2, 2, 0, 0),
            ("t2", "before", "tokens", True, ours, ours + 1, 0, 0),
            ("t3", "before", "facts", False, 2, 1, 1, 2),
            ("t3", "before", "items", False, 2, 1, 0, 1),
            ("t3", "before", "tokens", False, ours, 5, 0, 0),
        ]
        report = await shadow_report(memory.database, "default", limit=10)
        assert [(row["call"], row["aspect"], row["compared"], row["same"]) for row in report["aspects"]] == [
            ("before", "facts", 2, 1),
            ("before", "items", 2, 1),
            ("before", "tokens", 2, 1),
            ("after", "facts", 1, 1),
            ("after", "items", 1, 1),
        ]
        assert {row["turn_id"] for row in report["differing"]} == {"t3"}
        text = (await served.client.get("/metrics")).text
    assert 'myria_turn_comparisons_total{aspect="facts",call="before",outcome="same"} 1.0' in text
    assert 'myria_turn_comparisons_total{aspect="facts",call="before",outcome="different"} 1.0' in text
    assert 'myria_turn_comparisons_total{aspect="items",call="after",outcome="different"} 0.0' in text


@pytest.mark.parametrize(
    "given",
    [
        17,
        "text",
        [],
        {},
        {"unknown": 1},
        {"input_items": [7]},
        {"facts": "none"},
        {"context_token_count": "many"},
        {"recall_fact_ids": [1]},
        {"input_items": [{"content": [{"text": "a\0b zyxwv"}]}]},
    ],
)
async def test_a_result_that_cannot_be_read_changes_nothing(
    given: Any, memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    """The call answers as without it, and the comparison is counted as unreadable; no log holds what was sent."""
    metrics = ServerMetrics()
    with caplog.at_level(logging.DEBUG):
        async with serving(memory, SHADOW, metrics=metrics) as served:
            plain = await ask(served, "memory_before_turn", ASKED)
            assert await ask(served, "memory_before_turn", {**ASKED, "client_result": given}) == plain
            assert await ask(served, "memory_after_turn", {**KEPT, "client_result": given}) == {"ok": True}
            assert [row[1:4] for row in await told(memory)] == [("after", "all", False), ("before", "all", False)]
            seen = samples((await served.client.get("/metrics")).text)
    assert seen["myria_turn_comparisons_total", "aspect=all", "call=before", "outcome=unreadable"] == 1
    assert "zyxwv" not in caplog.text


async def test_a_turn_without_an_id_is_compared_under_the_id_that_it_is_given(memory: Memory) -> None:
    """The tool that prepares and keeps a turn names it, and the comparison has that name."""
    async with serving(memory, SHADOW) as served:
        asked = {"session_id": "s", "current_input": "Who am I?", "client_result": {"input_items": [said("Who am I?")]}}
        begun = await ask(served, "memory_run_turn", asked)
        assert {row[0] for row in await told(memory)} == {begun["turn_id"]}


async def test_outside_of_shadow_mode_nothing_is_compared(memory: Memory) -> None:
    """A host may go on sending its results after its cut-over; a repeat of a stored turn compares nothing either."""
    theirs: dict[str, Any] = {"client_result": {"input_items": [], "facts": []}}
    async with serving(memory, Settings(turns=TurnsSettings(enabled=True))) as served:
        await ask(served, "memory_after_turn", KEPT | theirs)
        await ask(served, "memory_before_turn", ASKED | theirs)
    async with serving(memory, SHADOW) as served:
        await ask(served, "memory_after_turn", KEPT | theirs)
        assert await told(memory) == []


async def test_each_tenant_is_cut_over_by_itself(database: Database, memory: Memory) -> None:
    """Its own mode counts before the setting: compared, served alone, refused, and back to what the settings say."""
    theirs = {"client_result": {"context_token_count": 1}}

    async def set_mode(store: AccessStore, mode: Any) -> None:
        assert (await store.set_turns("default", mode))["turns"] == mode
        memory.quotas._uses.clear()  # what a process read is good for five seconds

    async with access_store(database) as store:
        async with serving(memory, Settings(turns=TurnsSettings(enabled=True))) as served:
            await ask(served, "memory_after_turn", KEPT)
            await set_mode(store, "shadow")
            await ask(served, "memory_before_turn", ASKED | theirs)
            assert [row[2] for row in await told(memory)] == ["tokens"]
            await set_mode(store, "off")
            for tool in ("memory_before_turn", "memory_after_turn"):
                refused = await post(served, tool, {} if tool in PLAIN else ASKED)
                assert (refused["code"], refused["retryable"]) == ("PERMISSION_DENIED", False)
            for tool in ("memory_run_turn", "memory_run_maintenance", "memory_list_dir_with_abstract"):
                assert (await ask(served, tool, {}))["code"] == "PERMISSION_DENIED"
        async with serving(memory, SHADOW) as served:
            await set_mode(store, "on")
            await ask(served, "memory_before_turn", {**ASKED, "turn_id": "t4"} | theirs)
            assert len(await told(memory)) == 1
            await set_mode(store, None)
            await ask(served, "memory_before_turn", {**ASKED, "turn_id": "t4"} | theirs)
            assert len(await told(memory)) == 2


async def test_comparisons_are_removed_when_they_are_old(memory: Memory, database: Database) -> None:
    """By the control plane's rights; those that are younger stay."""
    async with serving(memory, SHADOW) as served:
        await ask(served, "memory_before_turn", ASKED | {"client_result": {"context_token_count": 1}})
        assert len(await told(memory)) == 1
    async with Pool(database.operator_dsn) as pool:
        await forget_shadows(pool, 3_600.0)
        assert len(await told(memory)) == 1
        await forget_shadows(pool, 0.0)
    assert await told(memory) == []


def test_what_a_host_may_tell() -> None:
    """Each part alone is enough."""
    assert client_result({"context_token_count": 3}) == ClientResult(tokens=3)
    assert client_result({"recall_fact_ids": []}) == ClientResult(fact_ids=())
    assert client_result({"facts": [{"tier": "L0", "key": "k", "value": 5}]}) == ClientResult(facts=(("L0", "k", "5"),))
    assert client_result({"context_token_count": True}) is None
