"""No note and no amendment is lost, or kept twice, under concurrency: agents that misbehave, builders killed."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import orjson
import pytest

from myria.builds.verify import verify
from myria.db.database import Database as Pool
from myria.settings.planner import PlannerSettings
from tests.soak.builds import Builds
from tests.soak.wire import Client, HungUp, Reply
from tests.support.counts import share
from tests.support.postgres import Database
from tests.support.processes import Spawner, free_port

WRITERS = 32
ROUNDS = share(30)
KILLS = share(10)
SEED = 20_261_123

SHARED = [f"Everybody knows that shelf {number} holds glaze number {number}" for number in range(2 * ROUNDS + 3)]
CONTESTED = 4

Json = dict[str, Any]


@dataclass(slots=True)
class Kept:
    """What was acknowledged. Texts are those of notes that nobody forgets, unless they are in `gone`."""

    sent: set[str] = field(default_factory=set)
    ids: dict[str, str] = field(default_factory=dict)
    versions: dict[tuple[str, int], str] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    codes: Counter[str] = field(default_factory=Counter)

    def acknowledge(self, text: str, answer: Json) -> None:
        """Note that a text was kept; each acknowledgement of one must name the same note."""
        assert self.ids.setdefault(text, answer["id"]) == answer["id"], f"{text!r} was acknowledged as two notes"
        self.codes["remembered" if answer["created"] else "remembered already"] += 1

    def amended(self, text: str, answer: Json) -> None:
        """Note a version that was acknowledged; no other text may have been acknowledged as the same one."""
        assert answer["updated"], answer
        version = answer["fragment"]["id"], answer["fragment"]["version"]
        assert self.versions.setdefault(version, text) == text, f"{version} was acknowledged to two"
        self.codes["amended"] += 1


@pytest.mark.soak
async def test_no_acknowledged_note_or_amendment_is_lost_or_doubled(database: Database, spawn: Spawner) -> None:
    """32 agents remember, amend, replace, forget and restore the same and different notes, hang up, and try again."""
    port = free_port()
    server = spawn.myria("serve", "--port", str(port), env={"MYRIA_POSTGRES_DSN": database.server_dsn})
    await asyncio.to_thread(server.wait_for, "serving MCP")
    kept = Kept()
    contested = {
        text: await _remember(Client(port), kept, text) for text in (f"contested {n}" for n in range(CONTESTED))
    }
    builds = Builds(spawn, database, KILLS, random.Random(SEED))
    began = time.monotonic()
    writing = [
        asyncio.create_task(_Writer(port, kept, number, list(contested.values()), builds).write())
        for number in range(WRITERS)
    ]
    everything = asyncio.gather(*writing, builds.run(writing))
    try:
        await everything
    finally:
        everything.cancel()
        await asyncio.gather(everything, return_exceptions=True)
    await builds.build_once(random.Random(0), may_kill=False)
    assert builds.kills == KILLS

    kept.gone.update(contested)
    await _check_log(database.dsn, kept)
    for text in random.Random(SEED).sample(sorted(kept.ids), 20):
        reply = await Client(port).call_until_answered("recall", {"text": text, "tokenBudget": 4000})
        held = [fragment["id"] for fragment in reply.content["fragments"] if fragment["content"] == text]
        assert held == ([] if text in kept.gone else [kept.ids[text]]), text
    async with Pool(database.dsn) as pool:
        report = await verify(pool, "default", PlannerSettings(), deep=True)
    assert report.failed == 0, report.to_json()
    print(f"\n{dict(kept.codes)}, {builds.finished} builds, {builds.kills} kills, {time.monotonic() - began:.1f} s")
    assert {"remembered already", "hung up", "amended", "already_superseded"} <= kept.codes.keys()


async def _remember(client: Client, kept: Kept, text: str, **more: Any) -> str:
    kept.sent.add(text)
    reply = await client.call_until_answered("remember", {"content": text, "type": "fact", **more})
    assert not reply.is_error, reply.content
    kept.acknowledge(text, reply.content)
    note_id: str = reply.content["id"]
    return note_id


class _Writer:
    """One agent: does everything in turn, with mishaps, each race between connections of its own."""

    def __init__(self, port: int, kept: Kept, number: int, contested: list[str], builds: Builds) -> None:
        self._port = port
        self._kept = kept
        self._number = number
        self._contested = contested
        self._builds = builds
        self._rng = random.Random(f"{SEED}:{number}")
        self._client = Client(port)

    async def write(self) -> None:
        shared = self._rng.sample(SHARED, len(SHARED))
        acts: list[Callable[[str], Awaitable[None]]] = [
            self._own,
            self._amend,
            self._batch,
            self._replaced_by_two,
            self._forgotten_beside_amending,
            self._restored_beside_a_duplicate,
        ]
        for round_ in range(ROUNDS):
            # Slower while ahead of the builders, so that notes come before, during and after each build.
            ahead = round_ / ROUNDS > (self._builds.kills + 0.5) / (KILLS + 1)
            await asyncio.sleep(self._rng.uniform(0, 1.5 if ahead else 0.05))
            for text in (shared.pop(), shared.pop()):
                await self._keep(text)
            await acts[(round_ + self._number) % len(acts)](f"writer {self._number} round {round_}")

    async def _own(self, name: str) -> None:
        for number in range(3):
            await self._keep(f"{name}: own note {number}")

    async def _keep(self, text: str) -> None:
        """Remember a text, with or without a key, with everything that a client can do wrong."""
        arguments = {"content": text, "type": "fact"}
        if self._rng.random() < 0.5:
            # Keys are everybody's of one scope: each writer has its own, also for what others keep too.
            arguments["idempotencyKey"] = f"{self._number}:{text}"
        self._kept.sent.add(text)
        await self._mishap("remember", arguments)
        reply = await self._client.call_until_answered("remember", arguments)
        assert not reply.is_error, reply.content
        self._kept.acknowledge(text, reply.content)

    async def _mishap(self, tool: str, arguments: Json) -> None:
        """Send it and hang up now and then: before the end of the request, after it, or twice at once."""
        chance = self._rng.random()
        if chance < 0.10:
            await self._client.call_and_hang_up(tool, arguments, sent=self._rng.random(), after_s=0)
        elif chance < 0.25:
            await self._client.call_and_hang_up(tool, arguments, sent=1.0, after_s=self._rng.uniform(0, 0.02))
        elif chance < 0.30:
            await asyncio.gather(self._call(tool, arguments), self._call(tool, arguments))
        self._kept.codes["hung up"] += chance < 0.25

    async def _amend(self, name: str) -> None:
        """Amend what everybody amends: of those who amend one version, one wins and the others are told so."""
        for number in range(4):
            text = f"{name}: amendment {number}"
            arguments = {"id": self._rng.choice(self._contested), "content": text}
            self._kept.sent.add(text)
            await self._mishap("amend", arguments)
            while (reply := await self._client.call_until_answered("amend", arguments)).is_error:
                assert reply.code == "already_superseded", reply.content
                self._kept.codes["already_superseded"] += 1
            self._kept.amended(text, reply.content)

    async def _batch(self, name: str) -> None:
        """Remember a batch that holds duplicates of itself and of what others keep."""
        texts = [f"{name}: of a batch {number}" for number in range(5)] + self._rng.sample(SHARED, 3)
        texts += texts[:3]
        self._kept.sent.update(texts)
        arguments = {"items": [{"content": text, "type": "fact"} for text in texts]}
        await self._mishap("batch_remember", arguments)
        reply = await self._client.call_until_answered("batch_remember", arguments)
        for text, result in zip(texts, reply.content["results"], strict=True):
            assert result["success"], result
            self._kept.acknowledge(text, result)

    async def _replaced_by_two(self, name: str) -> None:
        """Of two notes that replace one, one is kept, and the other is refused and not there."""
        old = f"{name}: old"
        note_id = await _remember(self._client, self._kept, old)
        texts = [f"{name}: new {number}" for number in range(2)]
        self._kept.sent.update(texts)
        replies = await self._at_once(
            *[("remember", {"content": text, "type": "fact", "supersedes": [note_id]}) for text in texts]
        )
        self._kept.gone.add(old)
        lost = [text for text, reply in zip(texts, replies, strict=True) if reply.is_error]
        assert len(lost) == 1, [reply.content for reply in replies]
        for text, reply in zip(texts, replies, strict=True):
            if reply.is_error:
                assert reply.code in {"already_superseded", "note_not_found"}, reply.content
                self._kept.refused.add(text)
                self._kept.codes[f"replacing: {reply.code}"] += 1
            else:
                self._kept.acknowledge(text, reply.content)

    async def _forgotten_beside_amending(self, name: str) -> None:
        """Forgetting takes the versions that are made meanwhile too; those who amend too late are told so."""
        text = f"{name}: to be forgotten"
        note_id = await _remember(self._client, self._kept, text)
        texts = [f"{text}, amended {number}" for number in range(2)]
        self._kept.sent.update(texts)
        forgotten, *amended = await self._at_once(
            ("forget", {"id": note_id}), *[("amend", {"id": note_id, "content": text}) for text in texts]
        )
        assert forgotten.content["deleted"] == 1, forgotten.content
        for amendment, reply in zip(texts, amended, strict=True):
            if reply.is_error:
                assert reply.code in {"already_superseded", "note_not_found"}, reply.content
                self._kept.codes[f"forgotten: {reply.code}"] += 1
            else:
                self._kept.amended(amendment, reply.content)
        self._kept.gone.update((text, *texts))

    async def _restored_beside_a_duplicate(self, name: str) -> None:
        """A forgotten note and a new one that says the same are never both there."""
        text = f"{name}: forgotten and wanted back"
        note_id = await _remember(self._client, self._kept, text)
        forgotten = await self._client.call_until_answered("forget", {"id": note_id})
        assert forgotten.content["deleted"] == 1, forgotten.content
        restored, remembered = await self._at_once(
            ("restore", {"id": note_id}), ("remember", {"content": text, "type": "fact"})
        )
        assert not remembered.is_error, remembered.content
        assert restored.is_error == remembered.content["created"], (restored.content, remembered.content)
        if restored.is_error:
            assert restored.code == "note_exists", restored.content
            self._kept.codes["restoring: note_exists"] += 1
            del self._kept.ids[text]  # the new note stands for the text from now on
        self._kept.acknowledge(text, remembered.content)

    async def _at_once(self, *calls: tuple[str, Json]) -> list[Reply]:
        """Make calls over a connection each, in any order."""
        order = self._rng.sample(range(len(calls)), len(calls))
        replies = await asyncio.gather(
            *[Client(self._port).call_until_answered(calls[index][0], calls[index][1]) for index in order]
        )
        return [replies[order.index(index)] for index in range(len(calls))]

    async def _call(self, tool: str, arguments: Json) -> None:
        try:
            await Client(self._port).call(tool, arguments)
        except HungUp:
            self._kept.codes["broken off"] += 1


async def _check_log(dsn: str, kept: Kept) -> None:
    """Check what the log holds, and what stands now: each text once, every version where it was acknowledged."""
    connection = await asyncpg.connect(dsn, timeout=30)
    try:
        await connection.execute("SELECT set_config('myria.tenant', 'default', false)")
        current = await connection.fetch(
            "SELECT n.note_id, n.version, n.live, e.payload->>'text' AS text FROM myria.notes n"
            " JOIN myria.events e USING (tenant_id, event_seq)"
        )
        payloads = await connection.fetch("SELECT payload FROM myria.events WHERE type = 'myria.note'")
        deadlocks = await connection.fetchval(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        )
    finally:
        await connection.close()
    stored = [orjson.loads(row["payload"]) for row in payloads]
    assert {payload["text"] for payload in stored} <= kept.sent - kept.refused
    versions = {(payload["note"]["id"], payload["note"]["version"]): payload["text"] for payload in stored}
    assert len(versions) == len(stored), "a version was stored twice"
    assert kept.versions.items() <= versions.items(), "an acknowledged amendment is not in the log"
    newest = {row["note_id"]: row["version"] for row in current}
    assert len(versions) == sum(newest.values()), "a version is missing in between"
    live = Counter(row["text"] for row in current if row["live"])
    assert set(live.values()) == {1}, "a text is kept twice"
    assert not live.keys() & (kept.gone | kept.refused)
    places = {row["text"]: row["note_id"] for row in current if row["live"]}
    amended = {note_id for (note_id, _) in kept.versions}
    for text, note_id in kept.ids.items():
        if text not in kept.gone and note_id not in amended:
            assert places.get(text) == note_id, f"{text!r} was acknowledged and is not kept"
    assert deadlocks == 0
