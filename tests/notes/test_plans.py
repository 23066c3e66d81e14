"""Statements on notes and turns look events up by number, also where PostgreSQL has no statistics yet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import asyncpg
import pytest

from myria.db.queries import sql
from tests.support.events import TENANT, append, conversation
from tests.support.postgres import Database

KEYS = r'{"\\x00"}'
SEQS = "{1,2,3,4,5,6,7,8,9,10,11,12}"
LISTED = ["2026-01-01", "2026-01-02", "0.5", "2026-01-01", "5", "10", "x", "10", "0"]
CASES = [
    ("notes.fold", [SEQS]),
    ("notes.fold_withdrawals", [SEQS, "true"]),
    ("notes.newest", [KEYS, "24", "2000"]),
    ("notes.of_versions", [SEQS]),
    ("notes.current", ["{note_1,note_2}"]),
    ("notes.of_first_events", ["{evt_1}"]),
    ("notes.event_id", ["note_1"]),
    ("notes.held_alike", ["\\x00", "fact_l0", "", "said", "c"]),
    ("review.listed", ["{held}", "100", "fact", "ana", "21"]),
    ("review.listed", ["{approved,refused}", "100", "fact", "ana", "21"]),
    ("review.state", ["note_1"]),
    ("review.replaces", ["{note_1,note_2}"]),
    ("review.ending", ["{note_1,note_2}", "evt_1"]),
    ("notes.replaced_notes", ["note_1", "{evt_1}"]),
    ("review.replaced", ["1"]),
    ("links.fold", [SEQS]),
    ("links.notes", ["{note_1,note_2}"]),
    ("evaluations.fold", [SEQS]),
    ("withdrawal.fold", [SEQS]),
    ("withdrawal.acts", ["evt_1", "20"]),
    ("withdrawal.write_acts", [SEQS]),
    ("feedback.fold", [SEQS]),
    ("sessions.fold", [SEQS]),
    ("sessions.look_at_ended", [SEQS]),
    ("turns.fold", [SEQS]),
    ("turns.standing", ["\\x00", "c", "t"]),
    ("turns.before_marks", ["{\\\\x00}", "{c}", "{evt_x}"]),
    ("turns.times_said", ["\\x00", "c", "200", "{note_1}"]),
    ("turns.days", ["\\x00", "c", "{1}", "200"]),
    ("turns.recent", ["\\x00", "c", "{1}", "20"]),
    ("turns.sessions_due", ["200"]),
    ("turns.awaited", ["\\x00", "c", "t"]),
    ("turns.facts", ["c", "{1}", "1000"]),
    ("memories.standing", ["{k}", "{2026-01-01}", "{org}"]),
    ("memories.by_ids", ["{note_1,note_2}"]),
    ("memories.listed", ["{1,2}", "{a}", "s", "{fact}", "{said}", "{t}", *LISTED, "false"]),
    ("memories.listed", ["{1,2}", "{a}", "s", "{fact}", "{said}", "{t}", *LISTED, "true"]),
    ("registrations.by_id", ["agent", "agent_1"]),
    ("registrations.agent_named", ["\\x00", "bot"]),
    ("registrations.newest", ["\\x00", "agent", "{a}", "100", "0"]),
    ("registrations.fold", [SEQS]),
    ("registrations.standing", ["{agent}", "{agent_1}"]),
    ("events.by_seqs", [SEQS, "{1}"]),
    ("events.ids", [SEQS]),
]
BY_ONE_EVENT = {"events_pkey", "events_tenant_id_event_id_key", "events_dedupe"}
INTERNAL_ALONE = {"withdrawal.fold", "feedback.fold"}
"""They may take the index of internal events, of which there are few: they look for nothing else."""

MODES = ["force_custom_plan", "force_generic_plan"]
FIRST_WITH_ADVICE = 180000
"""The version of PostgreSQL from which on the planner can be told what an empty table will hold."""


@pytest.mark.parametrize("mode", MODES)
async def test_events_are_looked_up_by_number(database: Database, mode: str) -> None:
    """Never by an index of scopes or times, whose entries of the tenant would all be read, and never by a scan."""
    await append(database.server_dsn, conversation(1_000))
    await _forget_statistics(database.superuser_dsn)
    assert not await _otherwise(database, mode)


@pytest.mark.parametrize("mode", MODES)
async def test_events_are_looked_up_by_number_from_the_first_on(database: Database, mode: str) -> None:
    """A plan that is made while there are no events yet is as good when there are: it may be kept."""
    if await _version(database) < FIRST_WITH_ADVICE:
        pytest.skip("this PostgreSQL takes no advice on empty tables")
    assert not await _otherwise(database, mode)


MANY_SCOPES = """
INSERT INTO myria.tenants (tenant_id) VALUES ('default') ON CONFLICT DO NOTHING;
SELECT set_config('myria.tenant', '*', false);
INSERT INTO myria.notes (tenant_id, note_id, scope_id, event_seq, first_seq, version, kind, topic, importance, anchor,
                         session, digest, created_at, changed_at, live, agent_id, event_type, tags)
SELECT 'default', 'note_' || n, CASE WHEN n > 50000 THEN 2000 ELSE {scope} END, n, n, 1, 'fact', 't', 0.5, false,
       false, sha256(n::text::bytea), timestamptz '2026-01-01' + n * interval '1 second', now(), true,
       'agent_' || n % 10, 'said', '{{}}'
FROM generate_series(1, 150000) n;
ANALYZE myria.notes;
"""
"""50,000 notes of the first 1,000 scopes, and 100,000 newer ones of another, which the caller does not see."""

SPREAD = "1 + n % 1000", "1 + n / 51"
"""Which scope a note has: each in turn, or one after the other."""

MOST_READ = {1: 200, 10: 2_000, 1_000: 21_000}
"""By how many scopes are visible; most where each of ten names has kept something in each of a thousand scopes."""


@pytest.mark.parametrize("scope", SPREAD)
async def test_a_list_does_not_read_all_notes(database: Database, scope: str) -> None:
    """However many scopes the caller sees, and however many notes are of others."""
    owner = await asyncpg.connect(database.superuser_dsn)
    await owner.execute(MANY_SCOPES.format(scope=scope))
    await owner.close()
    connection = await asyncpg.connect(database.server_dsn, statement_cache_size=0)
    read: dict[tuple[Any, ...], int] = {}
    try:
        await connection.execute(f"SELECT set_config('myria.tenant', '{TENANT}', false)")
        for visible, agents, order in product((1, 10, 1_000), ("NULL", "'{agent_3}'"), ("false", "true")):
            scopes = f"'{{{','.join(map(str, range(1, visible + 1)))}}}'"
            listed = (scopes, agents, *["NULL"] * 9, "101", "NULL", "101", "0", order)
            read[visible, agents, order] = await _notes_read(connection, "memories.listed", listed)
            active = (scopes, f"'{{{','.join(f'agent_{number}' for number in range(100))}}}'")
            read[visible, "last active"] = await _notes_read(connection, "memories.last_active", active)
    finally:
        await connection.close()
    assert {case: rows for case, rows in read.items() if rows > MOST_READ[case[0]]} == {}


async def _notes_read(connection: asyncpg.Connection[Any], name: str, values: Sequence[str]) -> int:
    """Return how many rows of notes a statement reads."""
    await connection.execute("SET plan_cache_mode = force_custom_plan")
    await connection.execute(f"PREPARE listing AS {sql(name)}")
    explain = f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE listing('{TENANT}', {', '.join(values)})"
    (plan,) = json.loads(await connection.fetchval(explain))
    await connection.execute("DEALLOCATE listing")
    return round(sum(_rows_read(plan["Plan"])))


def _rows_read(plan: dict[str, Any]) -> Iterator[float]:
    if plan.get("Relation Name") == "notes":
        yield (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    for below in plan.get("Plans", ()):
        yield from _rows_read(below)


async def _version(database: Database) -> int:
    """Return the version of the server."""
    connection = await asyncpg.connect(database.server_dsn)
    try:
        return int(await connection.fetchval("SHOW server_version_num"))
    finally:
        await connection.close()


async def _otherwise(database: Database, mode: str) -> dict[str, set[str]]:
    """Return the statements that look events up otherwise than by one event's keys, and how."""
    connection = await asyncpg.connect(database.server_dsn, statement_cache_size=0)
    wrong = {}
    try:
        await connection.execute(f"SELECT set_config('myria.tenant', '{TENANT}', false)")
        await connection.execute(f"SET plan_cache_mode = {mode}")
        for number, (name, arguments) in enumerate(CASES):
            values = ", ".join(f"'{value}'" for value in [TENANT, *arguments])
            await connection.execute(f"PREPARE case_{number} AS {sql(name)}")
            (plan,) = json.loads(await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE case_{number}({values})"))
            ways = set(_ways(plan["Plan"])) - BY_ONE_EVENT
            if name in INTERNAL_ALONE:
                ways.discard("events_internal")
            if ways:
                wrong[name] = ways
    finally:
        await connection.close()
    return wrong


async def _forget_statistics(dsn: str) -> None:
    """Let PostgreSQL know as little of every table as it does in the first minute of a database."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("DELETE FROM pg_statistic WHERE starelid::regclass::text LIKE 'myria.%'")
        await connection.execute(
            "UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE relnamespace = 'myria'::regnamespace"
        )
        assert await connection.fetchval("SELECT count(*) FROM pg_stats WHERE schemaname = 'myria'") == 0
    finally:
        await connection.close()


def _ways(plan: dict[str, Any]) -> Iterator[str]:
    """Yield how a plan comes to rows of events: the names of indexes, and scans."""
    if plan["Node Type"] == "Bitmap Heap Scan" and plan["Relation Name"] == "events":
        yield from (below["Index Name"] for below in plan["Plans"] if "Index Name" in below)
    elif plan.get("Relation Name") == "events":
        yield plan.get("Index Name", plan["Node Type"])
    for below in plan.get("Plans", ()):
        yield from _ways(below)
