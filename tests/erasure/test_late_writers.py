"""Who read words before an erasure, and would write them, or bring them back, after it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import orjson
import pytest

from myria import errors
from myria.access.journal import Journal
from myria.access.principal import Principal
from myria.builds import tasks
from myria.builds.capture import start_build
from myria.builds.compilation import compile_scope
from myria.builds.model import RunningBuild
from myria.builds.trees import TreeWriter
from myria.builds.versions import fingerprint
from myria.db.database import Database
from myria.erasure.commands import Erasures
from myria.erasure.model import Selection
from myria.llm.audit import Origin, Recorder
from myria.llm.client import Attempt
from myria.llm.secrets import Redactor
from myria.log.withdrawal.model import Withdrawal, withdrawal_event
from myria.memory import Memory
from myria.notes.folding import event_log
from myria.notes.turns.model import Session
from myria.notes.turns.shadow import Comparison
from myria.topics.identity import settings_digest
from myria.topics.model import Node
from tests.erasure.test_erasure import PHRASE, SETTINGS, erase, erasures, failed, said, traces
from tests.support import builds, postgres
from tests.support.events import TENANT, append, conversation


async def test_a_worker_that_stood_still_writes_nothing_of_what_it_read(
    database: postgres.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read and planned the events, its lease ends, they are erased: it goes on, and is refused."""
    await append(database.dsn, [*conversation(20), *(said(number) for number in range(4))])
    planner = SETTINGS.planner
    build_id = await builds.queue(database)
    write = TreeWriter._write
    stood: list[int] = []

    async def stand_still(self: TreeWriter, batch: Sequence[Node]) -> None:
        if not stood:
            stood.append(len(batch))
            await erase(database.dsn, Selection(query=PHRASE))
        await write(self, batch)

    monkeypatch.setattr(TreeWriter, "_write", stand_still)
    async with Database(database.builder_dsn) as pool:
        build = await start_build(pool, TENANT, build_id, fingerprint(planner))
        assert isinstance(build, RunningBuild)
        task = await tasks.claim(pool, build, "stalled", 0.1)
        assert task is not None
        with pytest.raises(errors.LeaseLost):
            await compile_scope(pool, build, task, planner, Counter())
        with pytest.raises(errors.LeaseLost):
            await TreeWriter(pool, build, task.scope_id).add_blocks({bytes(32): (b"", b"")})
    assert stood
    assert await traces(database.dsn) == []
    await builds.build(database)
    assert await failed(database.dsn) == {}
    assert await traces(database.dsn) == []


@pytest.mark.parametrize("in_a_build", [True, False])
async def test_a_call_of_a_model_from_before_is_written_down_without_its_words(
    database: postgres.Database, *, in_a_build: bool
) -> None:
    """Its numbers are there; of one that saw other scopes the text is, too."""
    await append(database.dsn, [said(1), *conversation(3, seed=2, participants=("carla",))])
    built = await builds.build(database)
    scopes = await builds.rows(database, "SELECT scope_id, participants FROM myria.scopes ORDER BY scope_id")
    await erase(database.dsn, Selection(query=PHRASE))
    async with Database(database.builder_dsn if in_a_build else database.server_dsn) as pool:
        for scope in scopes:
            origin = Origin(
                workflow="build" if in_a_build else "walk",
                participants=tuple(scope["participants"]),
                scopes=(scope["scope_id"],),
                build_id=built.build_id if in_a_build else None,
            )
            recorder = Recorder(origin, model="m", structure="tools", detail="full", redactor=Redactor())
            attempt = Attempt(
                number=1, outcome="ok", message=PHRASE, reply=PHRASE.encode(), input_tokens=7, output_tokens=1, cost=1,
                latency_ms=1,
            )  # fmt: skip
            recorder.call(1, attempt, [{"role": "user", "content": PHRASE}])
            recorder.tool("fetch_events", PHRASE, size=1, statements=[])
            await recorder.write(pool, TENANT)
    columns = "prompt, prompt_sha256, reply, reply_sha256, tools, message, input_tokens"
    calls = await builds.rows(database, f"SELECT {columns} FROM myria.llm_calls ORDER BY mask")
    assert [call["input_tokens"] for call in calls] == [7, 7]
    assert {name: value for name, value in calls[0].items() if value} == {"tools": "[]", "input_tokens": 7}
    assert PHRASE in calls[1]["prompt"]


async def test_what_was_erased_is_not_restored_by_an_import(database: postgres.Database) -> None:
    """An export from before may hold that a forgotten event was restored: that line is refused, others are stored."""
    erased, other = await append(database.dsn, [said(1), said(2, "something else")])
    await erase(database.dsn, Selection(events=(erased.event_id,)))
    restored, forgotten = (
        withdrawal_event(Withdrawal(reason="restored", events=(result.event_id,)), ("ana", "ben"), timestamp=9)
        for result in (erased, other)
    )
    async with Database(database.server_dsn) as pool:
        ingest = event_log(pool)
        with pytest.raises(errors.EventErased):
            await ingest.import_events(TENANT, [restored])
        with pytest.raises(errors.EventNotFound):
            await ingest.append_events(TENANT, [restored])
        await ingest.import_events(TENANT, [forgotten])
    query = "SELECT reason FROM myria.withdrawn WHERE event_seq = $1 ORDER BY by_event_seq DESC LIMIT 1"
    assert await builds.value(database, query, erased.event_seq) == "forgotten"


async def test_plans_of_a_model_go_a_bounded_part_at_a_time(database: postgres.Database) -> None:
    """More plans than one transaction takes name erased events: all of those go, and no other."""
    ids = [result.event_id for result in await append(database.dsn, [said(1), said(2, "something else")])]
    scope_id = await builds.value(database, "SELECT min(scope_id) FROM myria.scopes")
    planner = settings_digest(SETTINGS.planner)
    async with Database(database.dsn) as pool:
        async with pool.write(TENANT) as connection:
            await connection.executemany(
                "INSERT INTO myria.unit_plans (tenant_id, scope_id, unit, planner, plan, model, build_id) "
                "VALUES ($1, $2, $3, $4, $5::jsonb, 'm', 'b')",
                [
                    (TENANT, scope_id, bytes([at]) * 32, planner, orjson.dumps({"events": [ids[at == 7]]}).decode())
                    for at in range(8)
                ],
            )
        erasing: Erasures = erasures(pool)
        erasure_id = await erasing.start(Selection(events=(ids[0],)), reason="asked")
        most = []
        await erasing.run(erasure_id, at_once=3, progress=lambda counts: most.append(counts.get("unit_plans", 0)))
    assert sorted(set(most)) == [3, 6, 7]
    assert await builds.value(database, "SELECT array_agg(unit) FROM myria.unit_plans") == [bytes([7]) * 32]


async def test_what_is_written_down_late_names_no_erased_context(database: postgres.Database) -> None:
    """A serving process notes a call of a context, and compares a turn of it, before the context is erased, and writes
    both down afterwards: neither names it. What is done a minute later is written down as ever."""
    await append(database.dsn, [said(1, context_id="quokka"), said(2, "something else")])
    clock = [time.time()]
    principal = Principal(
        tenant=TENANT, actor="a", roles=frozenset({"append"}), faces=frozenset({"core"}), credential="c", own=("ana",)
    )
    session = Session(own=("bot",), participants=("ana", "bot"), project="p", session_id="quokka")
    async with Memory(database.server_dsn, SETTINGS) as memory:
        journal = Journal(memory.appending, SETTINGS.audit, now=lambda: clock[0])

        def note() -> None:
            call = {"context_id": "quokka"}
            journal.call(principal, face="core", tool="append_event", arguments=call, seconds=0.0, outcome="ok")

        note()
        await erase(database.dsn, Selection(contexts=("quokka",)))
        compared = Comparison(aspect="facts", same=True, ours=1, theirs=1, missing=0, extra=0)
        memory.shadows.note(TENANT, session, "t", "after", lambda: [compared], on_compared=lambda *_: None)
        await memory.shadows.close()
        await journal.flush()
        assert await traces(database.dsn) == []
        clock[0] += 120
        note()
        await journal.flush()
    rows = await builds.rows(database, "SELECT context_id FROM myria.call_log ORDER BY entry_id")
    assert [row["context_id"] for row in rows] == [None, "quokka"]
