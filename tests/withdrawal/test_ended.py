"""A note that has ended is in no answer from that moment on, long before maintenance withdraws it."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from myria.access.principal import local_principal
from myria.builds import browse
from myria.db.database import Database as Pool
from myria.db.queries import sql
from myria.log import transfer
from myria.memory import Memory
from myria_server.mcp.toolbox import Toolbox
from myria_server.metrics import ServerMetrics
from tests.support import builds
from tests.support.events import TENANT
from tests.support.postgres import Database

Json = dict[str, Any]

SETTINGS = builds.settings(planner={"gap_s": 3_600}, topics={}, mcp={})
US = ("ana", "ben")
HOUR_US = 3_600 * 10**6


class Kept:
    """A memory behind two faces, and all bytes that its read paths give."""

    def __init__(self, database: Database, memory: Memory) -> None:
        self.database = database
        self.memory = memory
        metrics = ServerMetrics()
        self.core = Toolbox(memory, SETTINGS, metrics)
        self.agent = Toolbox(memory, SETTINGS, metrics, api="agent")
        self.topics: set[str] = set()

    async def tell(self, name: str, **arguments: Any) -> Json:
        result = await self.agent.call(name, arguments, local_principal(TENANT, fallback=US))
        answer: Json = orjson.loads(result.body)
        return answer

    async def ask(self, name: str, **arguments: Any) -> Json:
        result = await self.core.call(f"myria_{name}", arguments, local_principal(TENANT, fallback=US))
        answer: Json = orjson.loads(result.body)
        return answer

    async def build(self) -> None:
        await builds.build(self.database, configured=SETTINGS)
        answer = await self.ask("query_references", max_nodes=100)
        self.topics |= {node["topic_id"] for node in answer["root"]["children"] if "topic_id" in node}

    async def answers(self, **more: Any) -> AsyncIterator[tuple[str, str]]:
        """Yield all that the read paths answer, each with its name."""
        for name in ("query_event_nodes", "query_references"):
            for asked in ({}, {"query": "kiln"}, {"include_payload": True} if name == "query_references" else {}):
                yield name, json.dumps(await self.ask(name, include_internal=True, **asked, **more))
        for topic_id in sorted(self.topics):
            yield "get_topic", json.dumps(await self.ask("get_topic", topic_id=topic_id))
        async with Pool(self.database.superuser_dsn) as pool, pool.read(TENANT) as connection:
            ids = [row["event_id"] for row in await connection.fetch("SELECT event_id FROM myria.events")]
        for event_id in ids:
            yield "get_event", json.dumps(await self.ask("get_event", event_id=event_id, include_internal=True, **more))
        for arguments in ({"text": "kiln"}, {"includeSuperseded": True}, {"sessionId": "s1"}):
            yield "recall", json.dumps(await self.tell("recall", **arguments))
        yield "context", json.dumps(await self.tell("context", sessionId="s1"))
        bound = await transfer.export_bound(self.memory.appending, TENANT)
        async for page in transfer.export_pages(self.memory.database, TENANT, bound):
            yield "export", page.text.decode()
        async with self.memory.database.read(TENANT) as connection:
            filters: tuple[Any, ...] = ([], None, None, None, None, None, None)
            yield (
                "myria events",
                repr(await connection.fetch(sql("browse.events"), TENANT, 0, [], *filters, 100, False)),
            )
            for row in await connection.fetch("SELECT snapshot_id FROM myria.snapshots WHERE number IS NOT NULL"):
                snapshot = await browse.find_snapshot(connection, TENANT, row["snapshot_id"])
                reader = await browse.ShownTrees.of(connection, TENANT, snapshot)
                async for root in browse.scope_roots(connection, TENANT, snapshot):
                    waiting = [root.root]
                    while waiting:
                        nodes = await reader.nodes(waiting)
                        yield "myria tree", repr(nodes)
                        waiting = [child for node in nodes for child in node.children]

    async def where(self, word: str, **more: Any) -> set[str]:
        """Return which read paths show a word."""
        return {name async for name, text in self.answers(**more) if word in text.casefold()}


@pytest.fixture
async def kept(database: Database) -> AsyncIterator[Kept]:
    async with Memory(database.server_dsn, SETTINGS) as memory:
        yield Kept(database, memory)


READS = {
    "query_event_nodes",
    "query_references",
    "get_event",
    "recall",
    "context",
    "export",
    "myria events",
}
"""The read paths that show a note of a running session."""


@pytest.mark.parametrize("built", [False, True])
@pytest.mark.parametrize("how", ["ended", "idle", "faded"])
async def test_what_has_ended_is_in_no_byte(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, how: str, *, built: bool
) -> None:
    """Its session was closed or was idle for an hour, or it has faded without one: no tool, page, export or tree shows
    it, nor its old version, though maintenance has not looked at it."""
    await kept.tell("remember", content="The kiln stays")
    clock = time.time_ns
    draft = await kept.tell("remember", content="The kiln is zqlate", scope="session", sessionId="s1")
    if how == "idle":
        draft_at = clock() - 3_700 * 10**9
        monkeypatch.setattr(time, "time_ns", lambda: draft_at)
        draft = await kept.tell("remember", content="The kiln is zqold", scope="session", sessionId="s2")
        monkeypatch.setattr(time, "time_ns", clock)
    elif how == "faded":
        kept_at = clock() - 400 * 86_400 * 10**9
        monkeypatch.setattr(time, "time_ns", lambda: kept_at)
        faded = await kept.tell("remember", content="The kiln is zqold", type="fact", topic="kiln")
        await kept.tell("remember", content="The kiln stays zqanchored", type="fact", isAnchor=True)
        monkeypatch.setattr(time, "time_ns", clock)
        assert (await kept.tell("amend", id=faded["id"], content="The kiln is back"))["code"] == "note_not_found"
    else:
        await kept.tell("amend", id=draft["id"], content="The kiln is zqold zqlate")
        assert await kept.where("zqold") >= READS
    if built:
        await kept.build()
    if how == "ended":
        await kept.tell("reflect", summary="Done", sessionId="s1")
    assert await kept.where("zqold") == set()
    assert await kept.where("zqold", include_superseded=True) == set()
    assert (await kept.where("zqlate") == set()) is (how == "ended")
    assert how != "faded" or await kept.where("zqanchored") >= READS - {"context"}
    assert await kept.where("the kiln stays") >= READS - {"context"}
    await kept.memory.consolidation.run(TENANT)
    assert await kept.where("zqold") == set()


async def test_a_later_page_loses_what_ended_meanwhile(kept: Kept) -> None:
    """And repeats no hit for it."""
    for number in range(6):
        await kept.tell("remember", content=f"The kiln is warm {number}", scope="session", sessionId=f"s{number}")
    first = await kept.ask("query_event_nodes", query="kiln", limit=2)
    for number in range(6):
        await kept.tell("reflect", summary=f"Done {number}", sessionId=f"s{number}")
    await kept.tell("remember", content="The kiln stays")
    second = await kept.ask("query_event_nodes", query="kiln", limit=2, cursor=first["next_cursor"])
    assert "kiln is warm" in json.dumps(first)
    assert "kiln is warm" not in json.dumps(second["root"])


async def test_what_a_session_prolongs_stays(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its notes hold as long as another comes within the hour; a restored one holds after it has ended."""
    clock = time.time_ns
    for minutes in (100, 50):
        monkeypatch.setattr(time, "time_ns", lambda minutes=minutes: clock() - minutes * 60 * 10**9)
        first = await kept.tell("remember", content=f"The kiln {minutes}", scope="session", sessionId="s1")
    monkeypatch.setattr(time, "time_ns", clock)
    assert await kept.where("the kiln 100") >= READS
    await kept.tell("reflect", summary="Done", sessionId="s1")
    assert await kept.where("the kiln") == set()
    await kept.memory.consolidation.run(TENANT)
    await kept.tell("restore", id=first["id"])
    assert await kept.where("the kiln 50") >= READS - {"recall", "context"}
    assert await kept.where("the kiln 100") == set()
