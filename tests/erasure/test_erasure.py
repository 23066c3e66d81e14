"""Erasure: what was erased is nowhere in the database, what stays is sound, and a receipt proves both."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import orjson
import pytest

from myria import errors
from myria.builds import capture
from myria.builds.snapshots import Registry
from myria.builds.verify import verify
from myria.db.database import Database
from myria.erasure.commands import Erasures
from myria.erasure.model import Receipt, Selection
from myria.index import decode
from myria.log import high_water
from myria.log.canonical import canonical_json
from myria.log.event import NewEvent
from myria.log.payloads import dedupe_key
from myria.log.withdrawal.commands import Withdrawals
from myria.memory import Memory
from myria.notes.commands import Notes
from myria.notes.drafting import Draft
from myria.notes.folding import event_log
from myria.notes.links import NoteLinks
from myria.notes.memories.model import MemoryDraft
from myria.notes.memories.sharing import Keeping
from myria.search import searching
from myria.search.queries import EventNodesQuery
from myria.search.ranking import rank
from myria.settings import Settings
from myria_embedded.account import server_account
from myria_embedded.find import find_binaries
from tests.support import builds, postgres
from tests.support.events import TENANT, append, conversation, event
from tests.support.patience import PATIENCE_S

SETTINGS = Settings()
PHRASE = "quokka 77810xz zanzibar"
"""What no other event says, and no time, number or hash can hold by luck."""
WORDS = ("quokka", "77810xz", "zanzibar")
_TRACE = re.compile("|".join(WORDS))


def erasures(database: Database, *, tenant: str = TENANT) -> Erasures:
    return Erasures(database, Registry(database, SETTINGS), event_log(database), tenant, actor="officer")


async def erase(dsn: str, selection: Selection, *, reason: str = "asked by the person", at_once: int = 3) -> Receipt:
    """Erase in small transactions; return the receipt with its key."""
    async with Database(dsn) as database:
        erasing = erasures(database)
        erasure_id = await erasing.start(selection, reason=reason)
        await erasing.run(erasure_id, at_once=at_once)
        receipt = await erasing.receipt(erasure_id)
        await erasing.handed_over(erasure_id)
        return receipt


async def traces(dsn: str) -> list[str]:
    """Return the columns in which a word of the phrase is: every column of every table, search blocks decoded."""
    found = []
    connection: asyncpg.Connection[Any] = await asyncpg.connect(dsn)
    try:
        await connection.execute("SELECT set_config('myria.tenant', '*', false)")
        columns = await connection.fetch(
            "SELECT c.table_name, c.column_name, c.data_type FROM information_schema.columns c "
            "JOIN information_schema.tables t USING (table_schema, table_name) "
            "WHERE c.table_schema = 'myria' AND t.table_type = 'BASE TABLE'"
        )
        for column in columns:
            table, name = column["table_name"], column["column_name"]
            for row in await connection.fetch(f'SELECT "{name}" AS raw, "{name}"::text AS text FROM myria."{table}"'):
                # As digits of a hash or an id the number is no trace: it stands there by chance.
                kept = row["raw"].decode("latin-1") if isinstance(row["raw"], bytes) else row["text"] or ""
                if _TRACE.search(kept.lower()):
                    found.append(f"{table}.{name}")
    finally:
        await connection.close()
    return sorted(set(found))


async def held_by_blocks(dsn: str) -> set[int]:
    """Return the numbers of all events whose words are in search blocks."""
    rows = await _rows(dsn, "SELECT block FROM myria.search_blocks")
    return {seq for row in rows for seq in decode(row["block"]).seq.tolist()}


async def _rows(dsn: str, query: str, *arguments: Any) -> list[Any]:
    async with Database(dsn) as database, database.read(TENANT) as connection:
        return list(await connection.fetch(query, *arguments))


async def _write(dsn: str, query: str, *arguments: Any) -> None:
    async with Database(dsn) as database, database.write(TENANT) as connection:
        await connection.execute(query, *arguments)


async def failed(dsn: str) -> dict[str, list[str]]:
    async with Database(dsn) as database:
        report = await verify(database, TENANT, SETTINGS.planner, deep=True, all_snapshots=True)
    return {check.name: check.failures for check in report.checks if check.failed}


def said(number: int, text: str = PHRASE, **fields: Any) -> NewEvent:
    return event(1_000 * number, f"I think that {text} it was {number}", **fields)


async def seeded(dsns: postgres.Database) -> list[str]:
    """Put the phrase everywhere it can get, and return the ids of the events that say it."""
    await append(dsns.dsn, [*conversation(40), *conversation(20, seed=2, participants=("carla",))])
    secret = [said(number, key=f"key {PHRASE} {number}", context_id=PHRASE) for number in range(4)]
    results = await append(dsns.dsn, [one._replace(channel="mail") for one in secret])
    await builds.build(dsns)
    ids = [result.event_id for result in results]
    async with Database(dsns.dsn) as database:
        ingest = event_log(database)
        notes = Notes(ingest, content_characters=200)
        draft = Draft(content=f"Note {PHRASE}", session_id=PHRASE, topic="t", anchor=True)
        first = await notes.remember(TENANT, ("ana",), draft, contract="memento", now=10**15)
        draft = Draft(content="Another thing", session_id="s2", anchor=True)
        second = await notes.remember(TENANT, ("ana",), draft, contract="memento", now=10**15)
        links = NoteLinks(ingest)
        await links.link(TENANT, second.note_id, [first.note_id], "caused_by", may_see=lambda _: True)
        late = said(9, key="late", participants=("ana", "ben"))
        replaced = await Withdrawals(ingest).append(TENANT, late, supersedes=ids[:1], may_see=lambda _: True)
    await builds.build(dsns)
    await builds.build(dsns, full=True, hold=True)
    number = (await _rows(dsns.dsn, "SELECT min(scope_id) AS id FROM myria.scopes"))[0]["id"]
    await _write(
        dsns.dsn,
        "INSERT INTO myria.llm_calls (tenant_id, call_id, workflow, round, attempt, mask, mask_scopes, model, "
        "structure, prompt, prompt_bytes, reply, reply_bytes, tools, input_tokens, output_tokens, cost_microusd, "
        "latency_ms, outcome) "
        "SELECT $1, 'c' || n, 'walk', 1, 1, '{ana}', ARRAY[$3::bigint], 'm', 'tools', $2, 1, $2, 1, "
        "jsonb_build_array($2::text), 1, 1, 1, 1, 'ok' FROM generate_series(1, 5) AS n",
        TENANT, PHRASE, number,
    )  # fmt: skip
    for statement in (
        "UPDATE myria.builds SET reason = 'because of ' || $1::text",
        "UPDATE myria.tenants SET auto_paused_reason = $1::text, "
        "waits = jsonb_build_object('vectors', jsonb_build_object('reason', $1::text, 'since', '2026-01-01'))",
        "UPDATE myria.pointer_moves SET reason = 'before ' || $1::text",
        "INSERT INTO myria.rebuild_requests (tenant_id, request_id, cause_key, trigger, reason, actor, closed_at) "
        "VALUES ('default', 'r', 'cause ' || $1::text, 'manual', $1::text, 'x', now())",
        "INSERT INTO myria.access_log (tenant_id, kind, actor, action, target, outcome, details) "
        "VALUES ('default', 'act', 'x', 'y', $1::text, 'ok', jsonb_build_object('said', $1::text))",
        "INSERT INTO myria.call_log (tenant_id, at, request_id, principal, face, tool, context_id, latency_ms, "
        "outcome) "
        "VALUES ('default', now(), 'r', 'p', 'core', 'append_event', $1::text, 1, 'ok')",
    ):
        await _write(dsns.dsn, statement, PHRASE)
    return [*ids, replaced.event_id]


async def test_memories_agents_and_sessions_are_erased_with_what_lists_them(database: postgres.Database) -> None:
    """Nothing of them is found in any table, and what stays of an agent is what the log still says."""
    async with Memory(database.dsn, SETTINGS) as memory:
        kept = await memory.memories.keep(
            TENANT,
            Keeping(own=("ana",), shared="org"),
            MemoryDraft(agent_id="quokka", content=PHRASE, event_type="zanzibar", tags=("quokka",)),
        )
        agent = await memory.registrations.register_agent(TENANT, "org", name="quokka", description=PHRASE, config=None)
        await memory.registrations.open_session(TENANT, "org", agent=agent.entry_id, metadata={"why": PHRASE})
    assert kept.memory is not None
    assert await traces(database.dsn)
    await erase(database.operator_dsn, Selection(participants=("org",), shared="remove"))
    assert await traces(database.dsn) == []
    async with Database(database.dsn) as pool:
        report = await verify(pool, TENANT, SETTINGS.planner, deep=True)
    assert [check.failures for check in report.checks if check.failed] == []


async def test_a_build_that_began_before_an_erasure_reads_the_end_of_the_log_anew(
    database: postgres.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole erasure passes between its look at the end of the log and its capture: it publishes none of that."""
    await append(database.dsn, [*conversation(30), *(said(number) for number in range(4))])
    marks = []

    async def and_then_erased(pool: Database, tenant: str) -> high_water.HighWaterMark:
        marks.append(await high_water_mark(pool, tenant))
        if len(marks) == 1:
            await erase(database.dsn, Selection(query=PHRASE))
        return marks[-1]

    high_water_mark = high_water.high_water_mark
    monkeypatch.setattr(capture, "high_water_mark", and_then_erased)
    await builds.build(database)

    members = await _rows(database.dsn, "SELECT unnest(event_seqs) AS seq FROM myria.nodes")
    erased = await _rows(database.dsn, "SELECT event_seq FROM myria.erased")
    assert len(erased) == 4
    assert not {row["seq"] for row in members} & {row["event_seq"] for row in erased}
    assert len(marks) == 2
    assert await failed(database.dsn) == {}


async def test_rolled_back_to_before_nothing_shows_and_others_answer_the_same(database: postgres.Database) -> None:
    """A process that had read the words, with its caches warm, shows none after the erasure, nor after a rollback to a
    snapshot from before, nor after the build on top of that; others answer byte for byte alike."""
    await append(database.dsn, conversation(30, seed=2, participants=("carla",)))
    await append(database.dsn, [said(number) for number in range(6)])
    first = await builds.build(database)
    await append(database.dsn, [said(20, "the harbour was quiet"), *conversation(5, seed=3, start=10**6)])
    await builds.build(database)
    async with Memory(database.server_dsn, SETTINGS) as memory:

        async def asked(participant: str) -> bytes:
            query = EventNodesQuery(participants=(participant,), query=f"{PHRASE} piano garden")
            answer = await memory.retrieval.query_event_nodes(TENANT, query)
            answer.pop("snapshot_id", None)
            return orjson.dumps(answer["root"])

        others = await asked("carla")
        assert b"quokka" in await asked("ana")
        await erase(database.dsn, Selection(query=PHRASE))
        assert b"quokka" not in await asked("ana")
        assert await asked("carla") == others
        async with Database(database.dsn) as pool:
            await Registry(pool, SETTINGS).rollback(TENANT, first.snapshot_id)
        assert b"quokka" not in await asked("ana")
        await builds.build(database)
        assert b"quokka" not in await asked("ana")
    incremental = await builds.roots(database)
    await builds.build(database, full=True)
    assert await builds.roots(database) == incremental
    assert await failed(database.dsn) == {}


async def test_a_read_that_began_before_an_erasure_leaves_nothing_wrong_behind(
    database: postgres.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends after its process has forgotten what it kept: those after it read blocks without the erased events, and
    answer as a new process does."""
    await append(database.dsn, [*conversation(30), *(said(number) for number in range(4))])
    await builds.build(database)
    query = EventNodesQuery(participants=("ana",), query="piano garden")
    ranks, goes_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def waiting(*arguments: Any, **named: Any) -> Any:
        loop.call_soon_threadsafe(ranks.set)
        assert goes_on.wait(PATIENCE_S)
        return rank(*arguments, **named)

    monkeypatch.setattr(searching, "RANKED_IN_PLACE", -1)
    monkeypatch.setattr(searching, "rank", waiting)
    async with Memory(database.server_dsn, SETTINGS) as memory, Database(database.dsn) as pool:
        erasing = erasures(pool)
        erasure_id = await erasing.start(Selection(query=PHRASE), reason="asked by the person")
        await erasing.withdraw(erasure_id)
        reading = asyncio.create_task(memory.retrieval.query_event_nodes(TENANT, query))
        await asyncio.wait_for(ranks.wait(), PATIENCE_S)
        await erasing.run(erasure_id)
        memory.forget(TENANT)
        goes_on.set()
        await reading
        after = await memory.retrieval.query_event_nodes(TENANT, query)
    async with Memory(database.server_dsn, SETTINGS) as memory:
        assert after == await memory.retrieval.query_event_nodes(TENANT, query)


async def test_a_dry_run_lists_pages_and_changes_nothing(database: postgres.Database) -> None:
    """A plan counts everything and lists a page at a time; afterwards the database is as before."""
    ids = await seeded(database)
    async with Database(database.dsn) as pool:
        first = await erasures(pool).plan(Selection(events=tuple(ids)), limit=3)
        assert first.next_after is not None
        second = await erasures(pool).plan(Selection(events=tuple(ids)), after=first.next_after, limit=3)
    assert [one["event_id"] for one in (*first.events, *second.events)] == ids
    assert first.counts["events"] == len(ids)
    assert second.next_after is None
    assert await _rows(database.dsn, "SELECT FROM myria.erased") == []
    assert await _rows(database.dsn, "SELECT FROM myria.withdrawn WHERE reason = 'forgotten'") == []


def dumped(dsn: str) -> str:
    """Return a dump of the whole database as text."""
    done = subprocess.run(
        [
            find_binaries(server_account(Path("/nonexistent")))["pg_dump"],
            "--enable-row-security",
            f"--dbname={dsn}",
        ],
        capture_output=True,
        check=True,
        env={**os.environ, "PGOPTIONS": "-c myria.tenant=*"},
    )
    return done.stdout.decode().lower()


class _KilledError(Exception):
    """Stands for a kill: nothing after it is done."""


async def test_killed_after_every_transaction_it_is_gone_on_with(database: postgres.Database) -> None:
    """Ended after each of its transactions and run again, an erasure ends like one that was not; from the first moment
    on none of its events stands."""
    ids = await seeded(database)
    kills = 0

    def kill(_: Any) -> None:
        raise _KilledError

    async with Database(database.dsn) as pool:
        erasing = erasures(pool)
        erasure_id = await erasing.start(Selection(query=PHRASE), reason="asked")
        while True:
            try:
                await erasing.run(erasure_id, at_once=2, progress=kill if kills < 20 else lambda _: None)
                break
            except _KilledError:
                kills += 1
            standing = await _rows(
                database.dsn,
                "SELECT FROM myria.events e WHERE event_id = ANY ($1) AND NOT EXISTS (SELECT FROM myria.withdrawn w "
                "WHERE w.event_seq = e.event_seq AND w.reason = 'forgotten')",
                ids,
            )
            assert standing == []
        receipt = await erasing.receipt(erasure_id)
        await erasing.handed_over(erasure_id)
        assert (await erasing.verify(receipt)).problems == ()
    assert kills
    assert receipt.content["rows"]["events"] == 7
    assert await traces(database.dsn) == []
    assert await failed(database.dsn) == {}


async def test_an_erased_event_is_not_appended_again_unless_admitted(database: postgres.Database) -> None:
    """Its channel and source key are refused, by an append and an import; others of the commit are stored."""
    again = said(1, key="k1")
    await append(database.dsn, [again, said(2, key="k2")])
    await erase(database.dsn, Selection(sources=(("test", "k1"),)))
    async with Database(database.server_dsn) as pool:
        ingest = event_log(pool)
        for attempt in (ingest.append_events, ingest.import_events):
            with pytest.raises(errors.EventErased):
                await attempt(TENANT, [again])
        assert not (await ingest.append_events(TENANT, [said(3, key="k3")]))[0].deduplicated
    async with Database(database.dsn) as pool:
        await erasures(pool).admit([("test", "k1")])
    async with Database(database.server_dsn) as pool:
        assert not (await event_log(pool).append_events(TENANT, [again]))[0].deduplicated


async def test_an_imported_event_of_somebody_named_like_a_key_is_erased(database: postgres.Database) -> None:
    """An append refuses such a name, but an import keeps what another Myria has stored; its withdrawal repeats it."""
    named = ("ana", "sk-proj-A1b2C3d4E5f6G7h8I9j0K1l2M3")
    async with Database(database.server_dsn) as pool:
        with pytest.raises(errors.InvalidArgument, match="participants"):
            await event_log(pool).append_events(TENANT, [said(1, participants=named)])
        (imported,) = await event_log(pool).import_events(TENANT, [said(1, participants=named)])
    await erase(database.dsn, Selection(events=(imported.event_id,)))
    assert await traces(database.dsn) == []


async def test_of_a_participant_shared_events_are_kept_or_removed_as_asked(database: postgres.Database) -> None:
    """Own events go; those with others stay by default, and the receipt says how many."""
    await append(
        database.dsn,
        [said(1, participants=("eva",)), said(2, participants=("eva", "ana")), said(3, participants=("ana",))],
    )
    kept = await erase(database.dsn, Selection(participants=("eva",)))
    assert (kept.content["rows"]["events"], kept.content["selected"]["shared_events"]) == (1, {"kept": 1})
    gone = await erase(database.dsn, Selection(participants=("eva",), shared="remove"))
    assert (gone.content["rows"]["events"], gone.content["selected"]["shared_events"]) == (1, {"removed": 1})
    left = await _rows(database.dsn, "SELECT FROM myria.events WHERE payload <> '{}' AND type IS NULL")
    assert len(left) == 1


async def test_the_reason_of_an_erasure_stays_unless_it_names_somebody(database: postgres.Database) -> None:
    """It may share words with what is erased, as its form promises; a name of those who took part does not stay."""
    reasons = ("asked to be erased, ticket 77", "EVA-maria asked", "evaluated")
    for number, reason in enumerate(reasons):
        await append(database.dsn, [said(number, "a ticket to zanzibar", participants=("eva-maria",))])
        receipt = await erase(database.dsn, Selection(participants=("eva-maria",)), reason=reason)
        assert receipt.content["reason"] == ("[erased]" if "EVA" in reason else reason)


async def test_an_erased_event_is_absent_for_who_withdraws_or_restores_it(database: postgres.Database) -> None:
    """Both are answered as if it were not there; what belongs to a thing of several versions goes without it."""
    (result,) = await append(database.dsn, [said(1)])
    await erase(database.dsn, Selection(events=(result.event_id,)))
    async with Database(database.server_dsn) as pool:
        withdrawals = Withdrawals(event_log(pool))
        with pytest.raises(errors.EventNotFound):
            await withdrawals.restore(TENANT, [result.event_id], may_see=lambda _: True)
        for dry_run in (True, False):
            with pytest.raises(errors.EventNotFound):
                await withdrawals.withdraw(
                    TENANT, [result.event_id], "forgotten", may_see=lambda _: True, dry_run=dry_run
                )
        (other,) = await append(database.dsn, [said(2)])
        ids = [result.event_id, other.event_id]
        await withdrawals.withdraw_versions(TENANT, ids, "forgotten", may_see=lambda _: True)
        again = await withdrawals.withdraw(TENANT, [other.event_id], "forgotten", may_see=lambda _: True)
        assert again.unchanged == (other.event_id,)


async def test_receipts_are_a_chain_that_shows_forgery(database: postgres.Database) -> None:
    """A changed file, a changed row, two exchanged rows and a word that came back are each found."""
    ids = [result.event_id for result in await append(database.dsn, [said(1), said(2, "something else 4711")])]
    first = await erase(database.dsn, Selection(events=(ids[0],)))
    second = await erase(database.dsn, Selection(events=(ids[1],)))
    assert second.content["previous"] == first.mac

    async def problems(receipt: Receipt) -> str:
        async with Database(database.dsn) as pool:
            return "; ".join((await erasures(pool).verify(receipt)).problems)

    assert await problems(first) == await problems(second) == ""
    assert "not the one that was issued" in await problems(replace(first, content={**first.content, "by": "nobody"}))
    await append(database.dsn, [said(7)])
    assert "erased words are in events" in await problems(first)
    assert await problems(second) == ""
    await _write(
        database.dsn,
        "UPDATE myria.erasures SET number = 3 WHERE number = 1",
    )
    assert "is missing" in await problems(second)
    await _write(database.dsn, "UPDATE myria.erasures SET number = 1 WHERE number = 3")
    forged = canonical_json({**first.content, "by": "nobody"}).decode()
    await _write(database.dsn, "UPDATE myria.erasures SET receipt = $1 WHERE number = 1", forged)
    assert "receipts" in await failed(database.dsn)


async def refused(dsn: str, role: str, *statements: str) -> None:
    """Check that PostgreSQL refuses each of some statements to a role."""
    connection: asyncpg.Connection[Any] = await asyncpg.connect(dsn)
    try:
        await connection.execute(f"SET ROLE {role}")
        await connection.execute("SELECT set_config('myria.tenant', 'default', false)")
        for statement in statements:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(statement)
    finally:
        await connection.close()


async def test_only_the_control_plane_can_erase_and_only_what_is_listed(database: postgres.Database) -> None:
    """Building can nothing of it. Serving can list what is to be erased, but neither remove a word nor see the key of a
    receipt, nor which keys are refused unless it names them. The control plane leaves no other event than those listed
    with less, and of those only the tombstone."""
    await append(database.dsn, [said(0, key="first")])
    await erase(database.dsn, Selection(sources=(("test", "first"),)))
    async with Database(database.server_dsn) as pool, pool.read(TENANT) as connection:
        hidden = "SELECT FROM myria.erasure_secrets UNION ALL SELECT FROM myria.refused_keys"
        assert await connection.fetch(hidden) == []
        keys = [dedupe_key("test", "first"), dedupe_key("test", "second")]
        assert await connection.fetchval("SELECT myria.refused_among($1, $2)", TENANT, keys) == keys[:1]
        assert await connection.fetchval("SELECT myria.refused_among($1, $2)", "other", keys) == []
    (listed, other) = await append(database.dsn, [said(1), said(2)])
    asked = (
        "INSERT INTO myria.erased (tenant_id, event_seq, scope_id, erasure_id) VALUES ('default', 1, 1, 'e')",
        "INSERT INTO myria.erasures (tenant_id, erasure_id, selected, actor, reason) "
        "VALUES ('default', 'e', '{}', 'x', 'y')",
    )
    removed = (
        "UPDATE myria.events SET payload = '{}'",
        "UPDATE myria.renderings SET label = ''",
        "UPDATE myria.erased SET erased_at = now()",
        "DELETE FROM myria.refused_keys",
        "SELECT receipt_key FROM myria.erasures",
        "SELECT secret FROM myria.receipt_secrets",
    )
    await refused(database.superuser_dsn, "myria_builder", *asked, *(one for one in removed if "renderings" not in one))
    await refused(
        database.superuser_dsn,
        "myria_server",
        *removed,
        "INSERT INTO myria.erased (tenant_id, event_seq, scope_id, erasure_id, erased_at) "
        "VALUES ('default', 1, 1, 'e', now())",
        "INSERT INTO myria.erasures (tenant_id, erasure_id, state, selected, actor, reason) "
        "VALUES ('default', 'e', 'erasing', '{}', 'x', 'y')",
        "INSERT INTO myria.erasures (tenant_id, erasure_id, selected, actor, reason, proved) "
        "VALUES ('default', 'e', '{}', 'x', 'y', true)",
        "UPDATE myria.erasures SET proved = true",
    )
    await _write(
        database.dsn,
        "INSERT INTO myria.erased (tenant_id, event_seq, scope_id, erasure_id) VALUES ('default', $1, 1, 'e')",
        listed.event_seq,
    )
    await refused(database.superuser_dsn, "myria_operator", 'UPDATE myria.events SET payload = \'{"text": "forged"}\'')
    await _write(
        database.operator_dsn,
        "UPDATE myria.events SET payload = '{}', topic_hints = '[]', source_event_key = NULL, dedupe_key = NULL, "
        "type = NULL, context_id = NULL, channel = 'erased'",
    )
    left = await _rows(database.dsn, "SELECT event_seq FROM myria.events WHERE payload <> '{}'")
    assert [row["event_seq"] for row in left] == [other.event_seq]


async def test_nothing_chosen_is_an_error(database: postgres.Database) -> None:
    """An erasure of nothing is refused, and leaves nothing behind but the attempt in the audit."""
    with pytest.raises(errors.InvalidArgument):
        Selection(query="  ")
    async with Database(database.dsn) as pool:
        with pytest.raises(errors.EventNotFound):
            await erasures(pool).start(Selection(events=("evt_none",)), reason="asked")
    (entry,) = await _rows(database.dsn, "SELECT action, outcome FROM myria.access_log")
    assert tuple(entry) == ("erase.start", "event_not_found")
    assert await _rows(database.dsn, "SELECT FROM myria.erasures UNION ALL SELECT FROM myria.erased") == []


def test_a_receipt_reads_back_from_its_file() -> None:
    """What is written is what is read; anything else is refused."""
    receipt = Receipt(content={"number": 1}, mac="00", key="AA==")
    assert Receipt.of(orjson.loads(orjson.dumps(receipt.to_json()))) == receipt
    with pytest.raises(errors.InvalidArgument):
        Receipt.of({"receipt": 1})
