"""Nothing that must not be kept reaches the database, and callers are told what was taken out."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import asyncpg
import orjson
import pytest

from myria.access.store import AccessStore
from myria.db.database import Database as Pool
from myria.errors import InvalidArgument
from myria.log import transfer
from myria.log.event import NewEvent
from myria.log.limits import Limits
from myria.log.withdrawal.commands import Withdrawals
from myria.memory import Memory
from myria.settings import RedactionSettings, Settings
from myria.settings.database import KINDS, Kind
from myria_server.metrics import ServerMetrics
from tests.metrics.scraping import samples
from tests.server.wire import Served, event, serving
from tests.support.postgres import Database

KEY = "sk-abcdefghijklmnopqrstuvwxyz123456"


async def payloads(database: Database) -> list[str]:
    """Return what is stored, oldest first."""
    connection = await asyncpg.connect(database.superuser_dsn)
    try:
        rows = await connection.fetch("SELECT payload::text AS payload FROM myria.events ORDER BY event_seq")
        return [row["payload"] for row in rows]
    finally:
        await connection.close()


async def test_an_append_is_redacted_before_it_is_stored(database: Database, settings: Settings) -> None:
    """Database, answers and metrics know that something was there, and nowhere what."""
    metrics = ServerMetrics()
    async with (
        Memory(database.server_dsn, settings, on_redacted=metrics.redacted) as memory,
        serving(memory, settings, metrics=metrics) as served,
    ):
        answer = await served.call(
            "append_event", event(payload={"text": f"my key is {KEY}", "password": "hunter2", "mail": "a@example.com"})
        )
        plain = await served.call("append_event", event(payload={"text": "good morning"}))
        batch = await served.call(
            "append_events", {"events": [event(payload={"text": "x"}), event(payload={"text": "4111 1111 1111 1111"})]}
        )
        seen = samples((await served.client.get("/metrics")).text)
    assert answer.content["redacted"] == {"secret": 1, "password": 1}
    assert "redacted" not in plain.content
    assert [result.get("redacted") for result in batch.content["results"]] == [None, {"card": 1}]
    assert seen["myria_redactions_total", "kind=secret"] == 1
    assert seen["myria_redactions_total", "kind=card"] == 1
    stored = await payloads(database)
    assert [KEY in row or "hunter2" in row for row in stored] == [False] * 4
    assert "a@example.com" in stored[0]


async def test_hints_are_redacted_as_payloads_are(database: Database, settings: Settings) -> None:
    """A topic's hint is text that a model wrote: what it holds of a secret is neither stored nor left uncounted."""
    hints = [f"use {KEY}", "x" * 187 + " pwd: hunter2", "pears"]
    async with Memory(database.server_dsn, settings) as memory, serving(memory, settings) as served:
        answer = await served.call(
            "append_event", event(topic_hints=[{"hint": hint, "confidence": 0.5} for hint in hints])
        )
    assert answer.content["redacted"] == {"secret": 1, "password": 1}
    connection = await asyncpg.connect(database.superuser_dsn)
    try:
        stored = orjson.loads(await connection.fetchval("SELECT topic_hints::text FROM myria.events"))
    finally:
        await connection.close()
    assert [hint["hint"] for hint in stored] == [
        "use [REDACTED_API_KEY]",
        ("x" * 187 + " pwd: [REDACTED_PWD]")[:200],
        "pears",
    ]


async def test_a_repeat_compares_what_is_stored(served: Served) -> None:
    """The same event sent twice is the same, although what was stored is not what was sent."""
    arguments = event(payload={"text": f"my key is {KEY}"}, source_event_key="once")
    first = await served.call("append_event", arguments)
    again = await served.call("append_event", arguments)
    assert again.content == {**first.content, "deduplicated": True}


@pytest.mark.parametrize(("kinds", "kept"), [((), True), (("email",), True), (("secret",), False)])
async def test_the_kinds_are_settings(database: Database, kinds: tuple[Any, ...], kept: bool) -> None:
    """What is switched off is kept."""
    settings = replace(Settings(), redaction=RedactionSettings(kinds=kinds))
    async with Memory(database.server_dsn, settings) as memory, serving(memory, settings) as served:
        answer = await served.call("append_event", event(payload={"text": KEY}))
    stored = await payloads(database)
    assert (KEY in stored[0]) is kept
    assert ("redacted" in answer.content) is not kept


async def test_a_payload_that_redaction_makes_too_long_is_refused(database: Database) -> None:
    """What could not be imported again is not stored."""
    settings = replace(Settings(), redaction=RedactionSettings(kinds=("email",)))
    settings = replace(settings, ingest=replace(settings.ingest, payload_bytes=64))
    async with Memory(database.server_dsn, settings) as memory, serving(memory, settings) as served:
        refused = await served.call("append_event", event(payload={"text": "a@b.co " * 6}))
    assert refused.content["error"]["code"] == "payload_too_large"
    assert await payloads(database) == []


async def test_an_import_redacts_what_no_memory_has_stored(memory: Memory, database: Database) -> None:
    """A line of somebody else's is redacted; a line of an export is stored as it was."""
    line = b'{"timestamp":"2026-03-01T10:00:00Z","channel":"c","participants":["a"],"payload":{"text":"%s"}%s}\n'
    text = line % (KEY.encode(), b"") + line % (KEY.encode(), b',"event_id":"evt_018f2b3c4d5e6f708192a3b4c5d6e7f8"')
    refused: list[transfer.RefusedLine] = []
    count = await transfer.import_lines(
        memory.log,
        "default",
        transfer.read_lines(io.BytesIO(text).readline, 100_000),
        Limits(),
        on_refused=refused.append,
    )
    assert (count.imported, count.redacted, refused) == (2, 1, [])
    stored = await payloads(database)
    assert [KEY in row for row in stored] == [False, True]


async def test_a_tenant_has_kinds_of_its_own(database: Database, settings: Settings) -> None:
    """What an administrator says of one tenant holds instead of the settings, until it says `default` again."""
    async with Pool(database.dsn) as pool:
        store = AccessStore(pool, actor="test")
        await store.create_tenant("team")
        steps: list[tuple[tuple[Kind, ...] | None, Any]] = [
            (("email",), {"email": 1}),
            ((), None),
            (None, {"secret": 1}),
        ]
        for kinds, expected in steps:
            shown = await store.set_redaction("team", kinds)
            assert shown["redacted"] == (None if kinds is None else list(kinds))
            async with Memory(database.server_dsn, settings) as memory:
                payload = orjson.dumps({"text": f"{KEY} a@example.com"})
                appended = NewEvent(timestamp=1, channel="c", participants=("a",), payload_json=payload)
                (result,) = await memory.log.append_events("team", [appended])
                (other,) = await memory.log.append_events("default", [appended])
            assert (result.redacted or None, other.redacted) == (expected, {"secret": 1})
        with pytest.raises(InvalidArgument):
            await store.set_redaction("team", ["gossip"])  # type: ignore[list-item]


async def test_ids_in_withdrawals_are_left_alone(database: Database) -> None:
    """What Myria itself appends names events, and no digits of theirs are taken for a telephone number."""
    settings = replace(Settings(), redaction=RedactionSettings(kinds=KINDS))
    async with Memory(database.server_dsn, settings) as memory:
        plain = NewEvent(timestamp=1, channel="c", participants=("a",), payload_json=b'{"text":"x"}')
        results = await memory.log.append_events("default", [plain] * 300)
        named = [result.event_id for result in results]
        withdrawals = Withdrawals(memory.log)
        await withdrawals.withdraw("default", named, "forgotten", may_see=lambda _: True)
    connection = await asyncpg.connect(database.superuser_dsn)
    try:
        assert await connection.fetchval("SELECT count(*) FROM myria.withdrawn") == 300
    finally:
        await connection.close()
