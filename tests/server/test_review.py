"""Held notes over every API: no answer shows one before its approval, and who may decide."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from myria.access import journal
from myria.db.database import Database as Pool
from myria.memory import Memory
from myria.settings import AuthSettings, ReviewSettings, Settings, TurnsSettings
from myria_server.api.memtrace.handlers import ROUTES
from myria_server.api.tools import TOOLS
from myria_server.paths import PATH_OF
from myria_server.paths import REST_PREFIX as PREFIX
from tests.server.wire import Served, call, headers, serving
from tests.support.keys import access_store, make_key
from tests.support.postgres import Database

HOLDS = Settings(
    turns=TurnsSettings(enabled=True), review=ReviewSettings(kinds=("decision",), sources=("api:rest", "api:reflect"))
)
SECRET = "quokka"
"""What held notes say, and no question does."""


@pytest.fixture
def settings() -> Settings:
    return HOLDS


async def ask(served: Served, name: str, /, _key: str | None = None, **arguments: Any) -> Any:
    """Call a tool of any API and return its structured content; of a refused one the body of its answer."""
    tool = next(tool for tool in TOOLS if tool.name == name)
    sent = headers(tool.plain()) | ({} if _key is None else {"authorization": f"Bearer {_key}"})
    response = await served.post(call(tool.plain(), arguments), sent, path=PATH_OF[tool.apis[0]])
    body = response.json()
    return body["result"]["structuredContent"] if "result" in body else body


async def everything(served: Served, note_id: str, event_id: str) -> dict[str, str]:
    """Return what every tool that reads answers, and every route of REST, as text, by their names."""
    turn = {"project": "p", "session_id": "s", "turn_id": "t9", "turn_input": [{"role": "user", "content": "kiln?"}]}
    arguments: dict[str, dict[str, Any]] = {
        "query_event_nodes": {"query": "kiln plan"},
        "query_references": {"query": "kiln plan"},
        "get_event": {"event_id": event_id, "include_superseded": True, "include_internal": True},
        "get_topic": {"topic_id": "top_" + "0" * 32},
        "recall": {"text": "kiln plan", "includeSuperseded": True, "sessionId": "s"},
        "context": {"sessionId": "s"},
        "graph_explore": {"startId": note_id},
        "fragment_history": {"id": note_id},
        "memory_stats": {},
        "memory_before_turn": turn,
        "memory_list_dir_with_abstract": {"project": "p", "session_id": "s"},
        "memtrace_recall": {"agent_id": "fern"},
        "memtrace_search": {"query": "kiln plan"},
        "memtrace_session_context": {"session_id": "s"},
        "get_active_snapshot": {},
        "list_snapshots": {},
        "get_snapshot_status": {},
    }
    names = {
        tool.name for tool in TOOLS if not tool.changes and "admin" not in tool.roles and "erase" not in tool.roles
    }
    names |= {"get_active_snapshot", "list_snapshots", "get_snapshot_status"}
    assert names == set(arguments)
    answers = {name: str(await ask(served, name, **given)) for name, given in arguments.items()}
    for route in ROUTES:
        path = PREFIX + route.path.replace("{id}", note_id if route.path.startswith("/memories") else "fern")
        if route.method == "GET":
            answers[route.name] = (await served.client.get(path)).text
        elif not route.changes:
            answers[route.name] = (await served.client.post(path, json={"query": "kiln plan"})).text
    return answers


async def test_no_answer_shows_a_held_note(served: Served) -> None:
    """No tool and no route before the approval, nor after a refusal; those that show notes do after the approval."""
    plan = f"Our plan for the kiln: the {SECRET} decides"
    kept = await ask(served, "remember", content=plan, type="decision", sessionId="s", topic=SECRET)
    assert kept["held"]
    body = {
        "agent_id": "fern",
        "event_type": "note",
        "content": f"The kiln has a plan of a {SECRET}",
        "session_id": "s",
    }
    answer = await served.client.post(f"{PREFIX}/memories", json=body)
    assert (answer.status_code, answer.json()["held"]) == (201, True)
    memory_id = answer.json()["id"]
    reflected = await ask(served, "reflect", summary=[f"A kiln and a {SECRET}"], sessionId="r")
    assert [note["held"] for note in reflected["fragments"]] == [True]

    listed = await ask(served, "list_held_notes")
    assert {note["rule"] for note in listed["under_review"]} == {
        "review.kinds=decision",
        "review.sources=api:rest",
        "review.sources=api:reflect",
    }
    event_of = {note["note_id"]: note["event_id"] for note in listed["under_review"]}
    ids = [kept["id"], memory_id]
    for decision in (None, "refuse", "hold"):
        if decision is not None:
            assert (await ask(served, "decide_notes", note_ids=ids, decision=decision))["changed"] == 2
        for note_id in ids:
            shown = await everything(served, note_id, event_of[note_id])
            assert [name for name, text in shown.items() if SECRET in text] == []

    assert (await ask(served, "decide_notes", note_ids=ids, decision="approve"))["changed"] == 2
    shown_after: set[str] = set()
    for note_id in ids:
        shown = await everything(served, note_id, event_of[note_id])
        shown_after |= {name for name, text in shown.items() if SECRET in text}
    assert shown_after >= {
        "query_event_nodes",
        "query_references",
        "get_event",
        "recall",
        "context",
        "graph_explore",
        "fragment_history",
        "memory_stats",
        "memtrace_recall",
        "memtrace_search",
    }


async def test_an_agent_is_told_that_a_note_waits(served: Served) -> None:
    """It never fails: links, a batch, an amendment, and a dry run say what is held."""
    fact = await ask(served, "remember", content="The kiln is blue", type="fact")
    for _ in range(2):
        kept = await ask(served, "remember", content="We sell the kiln", type="decision", linkedTo=[fact["id"]])
        assert (kept["success"], kept["held"]) == (True, True)
    both = await ask(served, "remember", content="It was fired", type="fact", linkedTo=[kept["id"]])
    assert both["created"]
    dry = await ask(served, "remember", content="We buy a kiln", type="decision", dryRun=True)
    assert (dry["id"], dry["held"]) == (None, True)
    batch = await ask(
        served, "batch_remember", items=[{"content": "We keep it", "type": "decision"}, {"content": "It is hot"}]
    )
    assert [result.get("held", False) for result in batch["results"]] == [True, False]
    dry = await ask(served, "amend", id=fact["id"], type="decision", dryRun=True)
    assert (dry["success"], dry["updated"], dry["held"], dry["dryRun"]) == (True, False, True, True)
    amended = await ask(served, "amend", id=fact["id"], type="decision")
    assert (amended["success"], amended["updated"], amended["held"]) == (True, False, True)
    assert amended["fragment"]["id"] != fact["id"]
    refused = await ask(served, "amend", id=kept["id"], content="We do not sell it")
    assert refused["code"] == "note_held"


async def test_many_are_decided_at_once_each_by_itself(served: Served, database: Database) -> None:
    """What cannot be decided is told beside what was; a repeat changes nothing; each decision is in the journal."""
    notes = [await ask(served, "remember", content=f"We decided on {n}", type="decision") for n in range(3)]
    ids = [note["id"] for note in notes]
    await ask(served, "decide_notes", note_ids=ids[:1], decision="refuse")
    answer = await ask(served, "decide_notes", note_ids=[*ids, "note_none"], decision="approve", reason="fine")
    assert answer["changed"] == 2
    assert [note.get("error", {}).get("code") for note in answer["decided"]] == [
        "note_decided",
        None,
        None,
        "note_not_found",
    ]
    assert (await ask(served, "decide_notes", note_ids=ids[1:], decision="approve"))["changed"] == 0
    async with Pool(database.operator_dsn) as pool:
        entries = [entry for entry in await journal.entries(pool, "default", 10) if entry["action"] == "decide_notes"]
    told = [(entry["target"], entry["outcome"], entry["details"]) for entry in entries[::-1]]
    assert told == [
        (ids[0], "ok", {"decision": "refuse"}),
        (ids[0], "note_decided", {"decision": "approve", "reason": "fine"}),
        (ids[1], "ok", {"decision": "approve", "reason": "fine"}),
        (ids[2], "ok", {"decision": "approve", "reason": "fine"}),
        ("note_none", "note_not_found", {"decision": "approve", "reason": "fine"}),
    ]
    wrong: list[dict[str, Any]] = [
        {"note_ids": []},
        {"note_ids": ["a\0b"]},
        {"note_ids": ids, "decision": "no"},
        {"note_ids": ids, "reason": "x" * 9999},
        {"note_ids": ids * 40},
        {"note_ids": {"a": 1}},
    ]
    for given in wrong:
        refused = await ask(served, "decide_notes", **{"decision": "approve", **given})
        assert refused.get("error")


async def test_two_reviewers_at_once(served: Served) -> None:
    """One wins, and the other is told so."""
    kept = await ask(served, "remember", content="We decided on Friday", type="decision")
    answers = await asyncio.gather(
        *(ask(served, "decide_notes", note_ids=[kept["id"]], decision=said) for said in ("approve", "refuse"))
    )
    assert sum(answer["changed"] for answer in answers) == 1
    assert [answer["decided"][0]["error"]["code"] for answer in answers if not answer["changed"]] == ["note_decided"]


async def test_only_an_administrator_reviews(database: Database, memory: Memory) -> None:
    """Others are refused; without `read` an administrator decides by id, and sees no text."""
    settings = Settings(auth=AuthSettings(mode="keys"), review=HOLDS.review)
    async with access_store(database, "other") as store:
        agent = await make_key(store, "fern", roles=("append", "read"), faces=("agent", "admin"))
        blind = await make_key(store, "root", roles=("admin",), faces=("admin",))
        reviewer = await make_key(store, "root", roles=("admin", "read"), faces=("admin",))
        elsewhere = await make_key(store, "root", roles=("admin", "read"), faces=("admin",), tenant="other")
    async with serving(memory, settings) as served:
        kept = await ask(served, "remember", agent, content="We decided on Friday", type="decision")
        for name, given in (
            ("list_held_notes", {}),
            ("decide_notes", {"note_ids": [kept["id"]], "decision": "approve"}),
        ):
            assert "role_required" in str(await ask(served, name, agent, **given))
        (seen,) = (await ask(served, "list_held_notes", reviewer))["under_review"]
        assert seen["text"] == "We decided on Friday"
        (seen,) = (await ask(served, "list_held_notes", blind))["under_review"]
        assert "text" not in seen
        assert (await ask(served, "list_held_notes", elsewhere))["under_review"] == []
        missed = await ask(served, "decide_notes", elsewhere, note_ids=[kept["id"]], decision="approve")
        assert missed["decided"][0]["error"]["code"] == "note_not_found"
        assert (await ask(served, "decide_notes", blind, note_ids=[kept["id"]], decision="approve"))["changed"] == 1
        assert (await ask(served, "recall", agent, text="Friday"))["count"] == 1
