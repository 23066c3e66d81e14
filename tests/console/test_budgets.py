"""What pages weigh and cost: a page's bytes have a bound, and a longer log takes hardly more statements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.console_pages import PAGES, Shown, loaded_by
from myria.memory import Memory
from myria.settings import ConsoleSettings, ReviewSettings, Settings
from tests.console.conftest import Browser
from tests.isolation.world import Statements
from tests.server.wire import MODERN, Served, call, event, headers
from tests.support import builds
from tests.support.events import TENANT, conversation
from tests.support.postgres import Database

MOST_BYTES = 150_000
WHO, ARCHIVIST = "ada", "archivist"
LONG_EVENT, LONG_NOTE = 60_000, 9_900
HELD = "decision"
A_LEVEL = 3
"""Statements that one more level of a tree may take."""
MORE: Mapping[str, int] = {"changes: roll back": 10 * A_LEVEL}
"""The same of pages that compare the active snapshot with one that it has left further behind: more levels differ."""


@pytest.fixture
def settings() -> Settings:
    """The console is on, and some notes wait for a review."""
    return Settings(console=ConsoleSettings(enabled=True), review=ReviewSettings(kinds=(HELD,)))


@pytest.fixture
def pools(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> list[Statements]:
    """What counts the statements of a memory, from before it is served; it asks for nothing beside the requests."""
    for name in ("erasure.forgetting.POLL_S", "notes.usage.WRITTEN_EVERY_S", "log.quotas.FRESH_S"):
        monkeypatch.setattr(f"myria.{name}", 3_600.0)
    monkeypatch.setattr("myria_server.http.authentication.TENANT_CHECK_S", 3_600.0)
    return [Statements(memory.appending), Statements(memory.database)]


async def _remember(served: Served, text: str, **more: Any) -> str:
    arguments = {"content": text, "agentId": ARCHIVIST, **more}
    kept = await served.post(
        call("remember", arguments, version=MODERN), headers("remember", version=MODERN), path="/mcp/agent"
    )
    content = kept.json()["result"]["structuredContent"]
    assert "id" in content, content
    return str(content["id"])


async def _fill(served: Served, memory: Memory, database: Database) -> Shown:
    """Keep a talk, and the longest texts; build twice, and return what there is to show."""
    talk = conversation(80, participants=(WHO, "bob"), seed=1)
    stored = await memory.log.append_events(TENANT, talk)
    before = (await builds.build(database)).snapshot_id
    long_ids: list[str] = []
    for number in range(25):
        text = f"<page {number}> & " + "\"lorem' <ipsum> " * (LONG_EVENT // 15)
        made = await served.call("append_event", event(f"long{number}", text=text, participants=[ARCHIVIST]))
        assert not made.is_error, made.content
        long_ids.append(made.content["event_id"])
    note = ""
    for number in range(40):
        words = f"<note {number}> of {WHO}{number} \U0001f600 "
        note = await _remember(served, (words * LONG_NOTE)[:LONG_NOTE])
    for number in range(25):
        await _remember(
            served, (f'Decided <{number}>: {WHO}{number} & "\U0001f600" ' * LONG_NOTE)[:LONG_NOTE], type=HELD
        )
    last = await builds.build(database)
    return Shown(
        who=WHO,
        archivist=ARCHIVIST,
        question="garden water piano",
        event=stored[0].event_id,
        long_event=long_ids[0],
        topic=await _topic(served),
        note=note,
        before=before or "",
        after=last.snapshot_id or "",
        build=last.build_id,
    )


async def _topic(served: Served) -> str:
    """Return a topic of the newest snapshot. More events may divide a topic anew: then its id is no longer there."""
    tree = await served.call("query_references", {"participants": [WHO]})
    return str(next(node["topic_id"] for node in tree.content["root"]["children"] if "topic_id" in node))


async def test_pages_keep_their_budget_and_take_hardly_more_statements_over_a_longer_log(
    pools: list[Statements], served: Served, browser: Browser, memory: Memory, database: Database
) -> None:
    """Every page is small, also with the longest texts; twenty times as many events cost a level of a tree at most."""
    shown = await _fill(served, memory, database)

    async def open_all() -> dict[str, int]:
        statements = {}
        for name, page in PAGES.items():
            for _ in range(2):  # the first one may fill a cache
                before = sum(pool.run for pool in pools)
                answer = await browser.get(shown.address(page))
                statements[name] = sum(pool.run for pool in pools) - before
            assert answer.status_code == (404 if name == "no such page" else 200), (name, answer.text)
            assert len(answer.content) <= MOST_BYTES, (name, len(answer.content))
            loaded.update(loaded_by(answer.text))
        return statements

    loaded: set[str] = set()
    few = await open_all()
    for start in range(0, 1_600, 400):
        more = conversation(400, participants=(WHO, "bob"), seed=2 + start, start=1_000 + start)
        await memory.log.append_events(TENANT, more)
    await builds.build(database)
    shown = replace(shown, topic=await _topic(served))
    many = await open_all()
    grown = {name: (few[name], many[name]) for name in PAGES if many[name] > few[name] + MORE.get(name, A_LEVEL)}
    assert not grown
    assert sum([len((await browser.get(address)).content) for address in loaded]) <= MOST_BYTES
