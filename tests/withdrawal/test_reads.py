"""What was withdrawn is in no byte that anybody gets, and what was restored is found at once."""

from __future__ import annotations

import asyncio
import json
import random
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import orjson
import pytest

from myria import browse, errors, transfer
from myria.access.principal import local_principal
from myria.building.run import run_build
from myria.memory import Memory
from myria.retrieval import gathering, lanes
from myria.verify import verify
from myria_server.metrics import ServerMetrics
from myria_server.readiness import Readiness
from myria_server.toolbox import Toolbox
from tests.support import builds
from tests.support.counts import CHECK, SOAK
from tests.support.events import TENANT
from tests.support.postgres import Database

Json = dict[str, Any]

SCOPES = (("ana", "ben"), ("ana", "ben", "carl"), ("ana", "dora"))
READERS = (["ana"], ["ben"], ["ana", "carl"])
SETTINGS = builds.settings(
    planner={"gap_s": 3_600}, topics={}, mcp={"ready_grace_s": 0}, auth={"local_participants": ("ana", "ben")}
)
POOL = ("ana", "ben")
"""Whose notes an agent keeps here."""
_VERSION = """
    SELECT e.event_id,
           (SELECT f.reason FROM myria.withdrawals_of_log f
            WHERE f.tenant_id = e.tenant_id AND f.event_seq = e.event_seq
            ORDER BY f.by_event_seq DESC LIMIT 1) AS reason
    FROM myria.events e WHERE e.type = 'myria.note' AND e.payload->>'text' LIKE $1
"""
_WORDS = ("garden", "tomato", "bridge", "river", "piano", "ticket")
_MARK = re.compile(r"zq(\d{5})qz", re.IGNORECASE)


class World:
    """A memory behind its tools, and what each event's own word may be shown for."""

    def __init__(self, database: Database, memory: Memory, chance: random.Random) -> None:
        self.database = database
        self.memory = memory
        self.chance = chance
        self.metrics = ServerMetrics()
        self.toolbox = Toolbox(memory, SETTINGS, self.metrics)
        self.agent = Toolbox(memory, SETTINGS, self.metrics, face="agent")
        self.notes: dict[str, list[int]] = {}
        self.ids: dict[int, str] = {}
        self.participants: dict[int, tuple[str, ...]] = {}
        self.state: dict[int, str] = {}
        self.topics: set[str] = set()
        self.cursors: list[tuple[str, Json]] = []
        self.at = 0

    async def call(self, name: str, **arguments: Any) -> Json:
        result = await self.toolbox.call(f"myria_{name}", arguments, local_principal(TENANT))
        answer: Json = orjson.loads(result.body)
        return answer

    async def tell(self, name: str, **arguments: Any) -> tuple[Json, str]:
        """Return what a tool of the agent's face answers, and all of its bytes."""
        result = await self.agent.call(name, arguments, local_principal(TENANT, fallback=POOL))
        answer: Json = orjson.loads(result.body)
        return answer, f"{result.body.decode()}\n{result.text}"

    async def written(self, name: str, **arguments: Any) -> str:
        """Return the text and the structured content of a query that is asked for text, without the query itself."""
        result = await self.toolbox.call(
            f"myria_{name}", {**arguments, "format": "text"}, local_principal(TENANT, fallback=POOL)
        )
        assert not result.is_error, result.body
        content: Json = orjson.loads(result.body)
        content.pop("constraints", None)
        return f"{json.dumps(content)}\n{result.text}"

    # What may happen.

    async def append(self, supersedes: int | None = None) -> None:
        number = len(self.ids)
        who = self.chance.choice(SCOPES) if supersedes is None else self.participants[supersedes]
        self.at += self.chance.choice([20, 60, 60, 900, 9_000])
        word = f"zq{number:05}qz"
        text = f"{word} {word} {self.chance.choice(_WORDS)} {self.chance.choice(_WORDS)}"
        named = {} if supersedes is None else {"supersedes": [self.ids[supersedes]]}
        answer = await self.call(
            "append_event",
            timestamp=(datetime(2026, 3, 1, tzinfo=UTC) + timedelta(seconds=self.at)).isoformat(),
            channel="chat",
            participants=list(who),
            payload={"text": text, "speaker": word if self.chance.random() < 0.2 else "Ana"},
            internal=supersedes is None and self.chance.random() < 0.1,
            type="topic_marker" if self.chance.random() < 0.1 else None,
            **named,
        )
        if supersedes is not None and self.state[supersedes] != "live":
            assert answer["error"]["code"] in ("already_superseded", "event_not_found")
            return
        self.ids[number], self.participants[number], self.state[number] = answer["event_id"], who, "live"
        if supersedes is not None:
            self.state[supersedes] = "superseded"

    async def withdraw(self) -> None:
        reason = self.chance.choice(["forgotten", "forgotten", "superseded", "expired"])
        chosen = self.some()
        answer = await self.call(
            "withdraw_events", event_ids=[self.ids[n] for n in chosen], reason=reason, participants=["ana"]
        )
        for number in chosen:
            if self.ids[number] in answer["event_ids"]:
                self.state[number] = reason

    async def restore(self) -> None:
        chosen = self.some()
        await self.call("restore_events", event_ids=[self.ids[n] for n in chosen], participants=["ana"])
        self.state.update(dict.fromkeys(chosen, "live"))

    async def build(self) -> None:
        await builds.build(self.database, configured=SETTINGS, full=self.chance.random() < 0.1)

    async def kill(self) -> None:
        build_id = await builds.queue(self.database)
        task = asyncio.create_task(run_build(SETTINGS, self.database.builder_dsn, TENANT, build_id))
        for _ in range(self.chance.randint(1, 400)):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await run_build(SETTINGS, self.database.builder_dsn, TENANT, build_id)

    async def rollback(self) -> None:
        snapshots = (await self.call("list_snapshots"))["snapshots"]
        if snapshots:
            with suppress(errors.ConflictError):
                await self.memory.rollback(TENANT, self.chance.choice(snapshots)["snapshot_id"])

    async def publish(self) -> None:
        built = await builds.build(self.database, configured=SETTINGS, hold=True)
        if built.snapshot_id is not None:
            await self.withdraw()
            await self.memory.publish_snapshot(TENANT, built.snapshot_id)

    async def begin_pages(self) -> None:
        for name, limit in (("query_event_nodes", {"limit": 3}), ("query_references", {"max_nodes": 8})):
            arguments = {"participants": ["ana"], **limit}
            answer = await self.call(name, **arguments)
            if answer["next_cursor"]:
                self.cursors.append((name, {**arguments, "cursor": answer["next_cursor"]}))

    async def remember(self) -> None:
        number, content = self.new_text()
        replaced = self.chance.choice(list(self.notes)) if self.notes and self.chance.random() < 0.4 else None
        more: Json = {} if replaced is None else {"supersedes": [replaced]}
        if self.chance.random() < 0.5:
            more["topic"] = self.chance.choice(_WORDS)
        answer, _ = await self.tell("remember", content=content, importance=self.chance.choice([0.2, 0.5, 0.9]), **more)
        if not answer["success"]:
            assert replaced is not None, answer
            return
        self.participants[number] = POOL
        self.notes[answer["id"]] = [number]
        await self.look_up([number])
        assert self.state[number] == "live"
        if replaced is not None:
            await self.look_up(self.notes[replaced])
            assert self.state[self.notes[replaced][-1]] == "superseded"

    async def amend(self) -> None:
        if not self.notes:
            return
        note_id = self.chance.choice(list(self.notes))
        number, content = self.new_text()
        was_live = self.state[self.notes[note_id][-1]] == "live"
        answer, _ = await self.tell("amend", id=note_id, content=content)
        assert answer["success"] == was_live, answer
        if was_live:
            self.participants[number] = POOL
            self.notes[note_id].append(number)
            await self.look_up(self.notes[note_id])
            assert [self.state[version] for version in self.notes[note_id][-2:]] == ["superseded", "live"]

    async def forget(self) -> None:
        if self.notes:
            note_id = self.chance.choice(list(self.notes))
            was_live = self.state[self.notes[note_id][-1]] == "live"
            await self.tell("forget", id=note_id, force=True)
            await self.look_up(self.notes[note_id])
            if was_live:
                assert {self.state[version] for version in self.notes[note_id]} == {"forgotten"}

    async def restore_note(self) -> None:
        if self.notes:
            note_id = self.chance.choice(list(self.notes))
            answer, _ = await self.tell("restore", id=note_id)
            await self.look_up(self.notes[note_id])
            if answer["success"]:
                assert self.state[self.notes[note_id][-1]] == "live"

    def new_text(self) -> tuple[int, str]:
        """Return the number of an event and a text that nothing else says; the number is taken by `look_up`."""
        number = len(self.ids)
        word = f"zq{number:05}qz"
        return number, f"{word} {word} {self.chance.choice(_WORDS)} {self.chance.choice(_WORDS)}"

    async def look_up(self, numbers: list[int]) -> None:
        """Learn the ids of versions, and what the log, folded anew, says of them."""
        async with self.memory.database.read(TENANT) as connection:
            for number in numbers:
                row = await connection.fetchrow(_VERSION, f"zq{number:05}qz %")
                assert row is not None
                self.ids[number] = row["event_id"]
                self.state[number] = "live" if row["reason"] in (None, "restored") else row["reason"]

    def some(self) -> list[int]:
        first = self.chance.randrange(len(self.ids))
        return [n for n in range(first, first + self.chance.choice([1, 1, 2, 6])) if n in self.ids]

    # What must hold.

    async def check(self) -> None:
        gone = {number for number, state in self.state.items() if state != "live"}
        softly = {number for number, state in self.state.items() if state == "superseded"}
        for text in [text async for text in self.answers(include_superseded=False)]:
            self.refuse(text, gone)
        for text in [text async for text in self.answers(include_superseded=True)]:
            self.refuse(text, gone - softly)
        for text in [text async for text in self.administration()]:
            self.refuse(text, gone)
        for reader in READERS:
            for more, shown in ((False, set(self.ids) - gone), (True, (set(self.ids) - gone) | softly)):
                answer = await self.call(
                    "query_event_nodes", participants=reader, limit=200, include_internal=True, include_superseded=more
                )
                found = {child["event_id"] for child in answer["root"]["children"]}
                visible = {n for n in shown if set(reader) <= set(self.participants[n])}
                assert found == {self.ids[n] for n in visible}

    def refuse(self, text: str, gone: set[int]) -> None:
        shown = {int(number) for number in _MARK.findall(text)} & gone
        assert not shown, (shown, text[:2000])

    async def answers(self, *, include_superseded: bool) -> Any:
        more = {"include_superseded": True} if include_superseded else {}
        words = [f"zq{n:05}qz" for n, state in self.state.items() if state != "live"][-3:]
        for reader in READERS:
            asked: list[tuple[str, Json]] = [
                ("query_event_nodes", {"include_internal": True, "limit": 200}),
                ("query_references", {"max_nodes": 500}),
                ("query_references", {"max_nodes": 500, "include_payload": True, "order": "oldest"}),
                ("query_references", {"query": "garden tomato piano", "max_nodes": 30}),
            ]
            asked += [("query_event_nodes", {"query": word}) for word in words]
            asked += [("query_references", {"query": word}) for word in words]
            for name, arguments in asked:
                answer = await self.call(name, participants=reader, **arguments, **more)
                assert "error" not in answer, answer
                answer.pop("constraints")
                text = json.dumps(answer)
                self.topics |= set(re.findall(r"top_[0-9a-f]+", text))
                yield text
            if more or self.chance.random() < 0.5:
                yield await self.written("query_references", participants=reader, max_nodes=60, view="full", **more)
            yield await self.written("query_event_nodes", participants=reader, max_tokens=900, limit=200, **more)
        if not more:
            for told in ({"tokenBudget": 4_000}, {"text": "garden tomato piano"}, {"keywords": words} if words else {}):
                yield (await self.tell("recall", **told, format="lines"))[1]
            yield (await self.tell("context", tokenBudget=4_000))[1]
        for topic in sorted(self.topics)[-40:]:
            yield json.dumps(await self.call("get_topic", topic_id=topic, participants=["ana"]))
        for number in list(self.ids)[-30:]:
            answer = await self.call(
                "get_event", event_id=self.ids[number], participants=["ana"], include_internal=True, **more
            )
            live = self.state[number] == "live" or (include_superseded and self.state[number] == "superseded")
            assert ("event" in answer) is live
            yield json.dumps(answer)
        if not include_superseded:
            for name, arguments in self.cursors:
                answer = await self.call(name, **arguments)
                answer.pop("constraints", None)
                yield json.dumps(answer)

    async def administration(self) -> Any:
        database = self.memory.database
        yield (await self.metrics.text(Readiness(self.memory.ready, grace_s=0))).decode()
        bound = await transfer.export_bound(self.memory.appending, TENANT)
        async for page in transfer.export_pages(database, TENANT, bound):
            yield page.text.decode()
        async with database.read(TENANT) as connection:
            rows = await connection.fetch("SELECT snapshot_id FROM myria.snapshots WHERE number IS NOT NULL")
            chosen = [await browse.find_snapshot(connection, TENANT, row["snapshot_id"]) for row in rows]
            for snapshot in chosen:
                async for root in browse.scope_roots(connection, TENANT, snapshot):
                    waiting = [root.root]
                    while waiting:
                        nodes = await browse.tree_nodes(connection, TENANT, waiting, floor=snapshot.withdrawn_floor)
                        yield repr(nodes)
                        waiting = [child for node in nodes for child in node.children]
            for before, after in pairwise(chosen):
                async for difference in browse.differing_scopes(connection, TENANT, before, after):
                    yield repr(difference)


@pytest.fixture(params=["alone", "packed"])
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Search scopes one by one, and packed as those of an agent in very many."""
    if request.param == "packed":
        monkeypatch.setattr(gathering, "SHARED_FROM", 1)
        monkeypatch.setattr(lanes, "FEW_SCOPES", 0)


@pytest.mark.usefixtures("how")
@pytest.mark.parametrize("seed", range(1_000 if SOAK else 2 if CHECK else 4))
async def test_withdrawn_is_in_no_byte(database: Database, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is appended, remembered, amended, replaced, forgotten, restored, built, rolled back or killed."""
    chance = random.Random(seed)
    async with Memory(database.server_dsn, SETTINGS) as memory:
        world = World(database, memory, chance)
        for _ in range(12):
            await world.append()
        for _ in range(2):
            await world.remember()
        steps = [
            world.append, world.append, world.withdraw, world.withdraw, world.restore, world.build, world.build,
            world.kill, world.rollback, world.publish, world.begin_pages, world.remember, world.remember, world.amend,
            world.forget, world.restore_note,
        ]  # fmt: skip
        for _ in range(10):
            step = chance.choice([*steps, "supersede", "supersede"])
            if step == "supersede":
                await world.append(supersedes=chance.choice(list(world.ids)))
            else:
                await step()  # type: ignore[operator]
            await world.check()
        await memory.resume_builds(TENANT)
        await world.build()
        await world.check()
        async with memory.database.read(TENANT) as connection:
            differing = await connection.fetchval(
                "SELECT count(*) FROM (TABLE myria.withdrawn EXCEPT SELECT f.*, w.xid FROM myria.withdrawals_of_log f "
                "JOIN myria.withdrawn w USING (tenant_id, event_seq, by_event_seq)) d"
            )
        assert differing == 0
        report = await verify(memory.database, TENANT, SETTINGS.planner.for_planner(), deep=True)
        assert report.failed == 0, [check.failures for check in report.checks if check.failed]
        world.refuse(caplog.text, {n for n, state in world.state.items() if state != "live"})
