"""Every read uses index conditions: as the serving role, under row-level security, no scan of a tenant."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest

from myria.db.queries import sql
from tests.support.events import TENANT
from tests.support.postgres import Database

EVENTS = 30_000
SCOPES = 300
NODES = 6_000

FILL = f"""
INSERT INTO myria.tenants (tenant_id) VALUES ('default'), ('other');
INSERT INTO myria.scopes (tenant_id, scope_key, participants)
SELECT t, sha256((t || n)::bytea), ARRAY['agent_' || n % 7, 'user_' || n]
FROM unnest(ARRAY['default', 'other']) t, generate_series(1, {SCOPES}) n;
INSERT INTO myria.scope_members (tenant_id, participant, scope_id)
SELECT tenant_id, p, scope_id FROM myria.scopes, unnest(participants) p;
INSERT INTO myria.events (tenant_id, event_seq, event_id, scope_id, occurred_at, internal, channel, source_event_key,
                          dedupe_key, payload)
SELECT s.tenant_id, n * 2 + (s.tenant_id = 'other')::int, 'evt_' || md5(n::text), s.scope_id,
       timestamptz '2026-01-01' + n * interval '1 second', n % 50 = 0, 'test', 'k' || n, sha256(n::text::bytea),
       jsonb_build_object('text', 'some words of event ' || n)
FROM generate_series(1, {EVENTS}) n
JOIN LATERAL (
    -- One scope holds half of its tenant, the others share the rest.
    SELECT tenant_id, scope_id FROM (
        SELECT tenant_id, scope_id, row_number() OVER (PARTITION BY tenant_id ORDER BY scope_id) AS place
        FROM myria.scopes) x
    WHERE place = CASE WHEN n % 2 = 0 THEN 1 ELSE 1 + n % {SCOPES} END
      AND (tenant_id = 'default' OR n <= {EVENTS} / 10)
) s ON true;
INSERT INTO myria.builds (tenant_id, build_id, trigger) VALUES ('default', 'bld_1', 'manual');
INSERT INTO myria.snapshots (tenant_id, snapshot_id, number, build_id, status, cutoff, tail_xid, lineage,
                             planner_version, planner_settings, builder_version, summarizer_version,
                             merge_policy_version)
SELECT 'default', 'snap_' || n, n, 'bld_1', CASE WHEN n = 200 THEN 'active' ELSE 'archived' END, {EVENTS} * 2 - 500,
       pg_current_xact_id(), int8multirange(int8range(1, n + 1)), 1, '', '', '', '' FROM generate_series(1, 200) n;
INSERT INTO myria.active_snapshots (tenant_id, snapshot_id) VALUES ('default', 'snap_200');
INSERT INTO myria.nodes (tenant_id, node_id, scope_id, node_type, event_seqs, weights)
SELECT 'default', sha256(('n' || n)::bytea), 1 + n % {SCOPES}, 'leaf_topic', ARRAY[n], ARRAY[1000]
FROM generate_series(1, {NODES}) n;
INSERT INTO myria.renderings (tenant_id, rendering_id, scope_id, node_id, node_type, level, topic_id, anchor_seq,
                              anchor_event_id, label, summary, metadata, children, is_unit, events, leaves, units,
                              key_at, key_event_id, first_at, last_at)
SELECT 'default', sha256(('r' || n)::bytea), 1 + n % {SCOPES}, sha256(('n' || n)::bytea), 'internal_topic', 8,
       'top_' || n, n * 2, 'evt_' || md5(n::text), 'label', 'summary', '{{}}',
       ARRAY[sha256(('r' || n * 2)::bytea), sha256(('r' || n * 2 + 1)::bytea)], false, 1, 1, 1,
       '2026-01-01', 'evt', '2026-01-01', '2026-01-01'
FROM generate_series(1, {NODES}) n;
INSERT INTO myria.topics (tenant_id, topic_id, scope_id, node_type, level, anchor_seq, anchor_event_id, anchor_at)
SELECT 'default', 'top_' || n, 1 + n % {SCOPES}, 'leaf_topic', 0, n, 'evt', '2026-01-01'
FROM generate_series(1, {NODES}) n;
INSERT INTO myria.scope_roots (tenant_id, scope_id, number, root_rendering_id, blocks)
SELECT 'default', s, n * 10, sha256(('r' || s)::bytea), ARRAY[sha256(('r' || s)::bytea)]
FROM generate_series(1, {SCOPES}) s, generate_series(1, 10) n;
INSERT INTO myria.search_blocks (tenant_id, rendering_id, analyzer_version, scope_id, block, leaf_ids)
SELECT 'default', sha256(('r' || n)::bytea), 1, 1 + n % {SCOPES}, '\\x00', '' FROM generate_series(1, {NODES} / 10) n;
INSERT INTO myria.withdrawn (tenant_id, scope_id, event_seq, by_event_seq, reason)
SELECT e.tenant_id, e.scope_id, e.event_seq, e.event_seq + 1000, 'forgotten'
FROM myria.events e WHERE e.event_seq % 40 = 0 OR e.tenant_id = 'other';
SELECT set_config('myria.tenant', '*', false);
INSERT INTO myria.notes (tenant_id, note_id, scope_id, event_seq, first_seq, version, kind, topic, importance, anchor,
                         context_id, session, digest, created_at, changed_at, live, agent_id, tags)
SELECT e.tenant_id, 'note_' || e.event_seq, e.scope_id, e.event_seq, e.event_seq, 1, 'fact', 'kiln', 0.5, false,
       's' || e.event_seq, true, sha256(e.event_id::bytea), e.occurred_at, e.occurred_at, true, 'default', '{{}}'
FROM myria.events e WHERE e.event_seq % 10 = 0;
INSERT INTO myria.sessions (tenant_id, scope_id, context_id, begun_seq, last_seq, last_at, idle_s)
SELECT n.tenant_id, n.scope_id, n.context_id, n.event_seq, n.event_seq, n.changed_at, 3600 FROM myria.notes n;
UPDATE myria.note_looks SET ends_at = NULL WHERE note_id <> 'note_100';
INSERT INTO myria.subject_roots (tenant_id, scope_id, number, root_rendering_id, since)
SELECT tenant_id, s, n * 10, sha256(('r' || s)::bytea), 1
FROM unnest(ARRAY['default', 'other']) tenant_id, generate_series(1, {SCOPES}) s, generate_series(1, 10) n;
INSERT INTO myria.subject_holders (tenant_id, scope_id, key, number, holders, subject)
SELECT 'default', 1 + n % {SCOPES}, substr(sha256(('k' || n)::bytea), 1, 16), m * 10, '\\x00', sha256(('r' || n)::bytea)
FROM generate_series(1, {NODES}) n, generate_series(1, 3) m;
INSERT INTO myria.subject_nodes (tenant_id, rendering_id, scope_id, node_id, level, topic_id, anchor_seq,
                                 anchor_event_id, label, summary, metadata, children, is_subject, events, leaves,
                                 subjects, key_at, key_digest, key_event_id, first_at, last_at)
SELECT 'default', sha256(('s' || n)::bytea), 1 + n % {SCOPES}, sha256(('n' || n)::bytea), 1, 'top_' || n, n * 2, 'evt',
       'label', 'summary', '{{}}', ARRAY[sha256(('r' || n * 2)::bytea), sha256(('r' || n * 2 + 1)::bytea)],
       true, 1, 1, 1, '2026-01-01', '\\x00', 'evt', '2026-01-01', '2026-01-01'
FROM generate_series(1, {NODES}) n;
INSERT INTO myria.text_vectors (tenant_id, model, digest, vector)
SELECT 'default', 'm', sha256(n::text::bytea), '\\x00' FROM generate_series(1, {NODES}) n;
INSERT INTO myria.event_vectors (tenant_id, model, event_seq, scope_id, digest, xid)
SELECT 'default', 'm', n * 2, 1 + n % {SCOPES}, sha256(n::text::bytea), (10 + n)::text::xid8
FROM generate_series(1, {NODES}) n;
"""

SMALL = frozenset({"active_snapshots", "installation", "tenants", "snapshots"})
"""A row per tenant, or per kept snapshot."""

RENDERING = "\\x" + "ab" * 32


@dataclass(frozen=True, slots=True)
class Case:
    """One statement with arguments as PostgreSQL writes them."""

    name: str
    arguments: Sequence[str | None]

    def __str__(self) -> str:
        return self.name


CASES = [
    Case("events.by_seqs", [TENANT, "{2,4,6,88}", "{1,2,3}"]),
    Case("events.placed", [TENANT, "{2,4,6,88}", "{1,2,3}"]),
    Case("events.texts", [TENANT, "{2,4,6,88}", "{1,2,3}"]),
    Case("events.short_payloads", [TENANT, "{2,4,6,88}", "{1,2,3}", "4096"]),
    Case("events.by_id", [TENANT, "evt_c4ca4238a0b923820dcc509a6f75849b"]),
    Case("events.ids", [TENANT, "{2,4,6,88}"]),
    Case("events.of_key", [TENANT, RENDERING]),
    Case("events.stored_keys", [TENANT, rf'{{"\{RENDERING}","\{RENDERING}"}}']),
    Case("events.withdrawn", [TENANT, "{2,4,6,88}"]),
    Case("events.tail", [TENANT, "{1,2,3}", "{0,0,0}", str(EVENTS * 2 - 500)]),
    Case("events.tail_length", [TENANT, str(EVENTS * 2 - 500), "300"]),
    Case("events.short_tail", [TENANT, str(EVENTS * 2 - 500), "{agent_3,user_10}", "0", "{1,2}"]),
    Case("events.internal", [TENANT, "{1,2,3}", "{0,0,0}"]),
    Case(
        "events.find_duplicates",
        [TENANT, f'{{"(evt_x,1,2026-01-01,c,,,,\\\\\\\\{RENDERING[1:]},f,{{}},[],)"}}', "false"],
    ),
    Case("vectors.of_scopes", [TENANT, "m", "{1,2,3}"]),
    Case("vectors.count", [TENANT, "m", "{1,2,3}"]),
    Case("vectors.new", [TENANT, "m", str(NODES), "{1,2,3}"]),
    Case("retrieval.snapshot_view", [TENANT, None, "{agent_3,user_10}"]),
    Case("retrieval.snapshot_of_cursor", [TENANT, "snap_100"]),
    Case("retrieval.withdrawn", [TENANT, str(EVENTS * 2 - 500)]),
    Case("retrieval.withdrawn_of_scope", [TENANT, "3", str(EVENTS * 2 - 500)]),
    Case("retrieval.ended", [TENANT, None]),
    Case("retrieval.count_withdrawn", [TENANT]),
    Case("retrieval.withdrawn_internal", [TENANT, "{1,2,3}", "{restored}"]),
    Case("retrieval.superseded", [TENANT, "{1,2,3}", str(EVENTS * 2 - 500)]),
    Case("retrieval.replaced", [TENANT, "{1,2,3}", str(EVENTS * 2 - 500), "100"]),
    Case("retrieval.successors", [TENANT, "{2,4,6,88}"]),
    Case("retrieval.replaced_by", [TENANT, "44"]),
    Case("retrieval.older", [TENANT, "{44,88}", "20"]),
    Case("retrieval.driver", [TENANT, "{agent_3,user_10}"]),
    Case("retrieval.exact_tree", [TENANT, RENDERING, "snap_200"]),
    Case("retrieval.visible_trees", [TENANT, "{agent_3,user_10}", "snap_200", "user_10", "0", "1000", "{}"]),
    Case("retrieval.visible_trees", [TENANT, "{agent_3}", "snap_200", "agent_3", "0", "1000", "{1,2,3}"]),
    Case("retrieval.changed_trees", [TENANT, "{1,2,3}", "{10,20,0}", "snap_200"]),
    Case("retrieval.blocks", [TENANT, f'{{"\\{RENDERING}"}}', "1"]),
    Case("retrieval.renderings", [TENANT, f'{{"\\{RENDERING}"}}']),
    Case("retrieval.above_blocks", [TENANT, RENDERING, f'{{"\\{RENDERING}"}}']),
    Case("retrieval.expected", [TENANT, "evt_c4ca4238a0b923820dcc509a6f75849b"]),
    Case("retrieval.topic", [TENANT, "top_77"]),
    Case("retrieval.node", [TENANT, RENDERING]),
    Case("retrieval.newest_moment", [TENANT, "{1,2,3}"]),
    Case("retrieval.children", [TENANT, RENDERING]),
    Case("retrieval.seen", [TENANT, r'{"[\"user_10\", \"agent_3\"]","[\"nobody\"]"}']),
    Case("retrieval.cursor_secret", []),
    Case("retrieval.subjects_since", [TENANT, "snap_200", "{1,2,3}"]),
    Case("retrieval.subjects_of_keys", [TENANT, "snap_200", "{1,2}", rf'{{"\{RENDERING}","\{RENDERING}"}}', "{1,1}"]),
    Case("retrieval.leaves_of_subject", [TENANT, RENDERING, "100"]),
    Case("retrieval.shared_context", [TENANT, f'{{"\\{RENDERING}"}}']),
    Case("scopes.people", [TENANT, "", "user_", "101", "{agent_3,user_10}"]),
    Case("scopes.names", [TENANT, "user_3", "user_", "101", None]),
    Case("scopes.names", [TENANT, "user_3", "user_", "101", "50"]),
    Case("scopes.names_beside", [TENANT, "{agent_3}", "500", "100", "50"]),
]
MUST_BOUND = {"events.tail": ("xid",), "events.internal": ("xid",)}
"""Columns that must bound an index scan: a filter on them would read a whole scope."""

WRITES = frozenset({"events.append", "events.append_alone"})


@pytest.fixture(scope="module")
def filled(databases: Any) -> Iterator[Database]:
    """A database of 30,000 events of one tenant, and a tenth of that of another."""
    with databases.fresh() as one:
        databases.loop.run(_fill(one.superuser_dsn))
        yield one


async def _fill(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(FILL)
    await connection.execute("VACUUM ANALYZE")
    await connection.close()


@pytest.fixture
async def serving(filled: Database) -> AsyncIterator[asyncpg.Connection[Any]]:
    """A transaction of the serving role."""
    connection = await asyncpg.connect(filled.server_dsn, statement_cache_size=0)
    await connection.execute("BEGIN READ ONLY")
    await connection.execute(f"SELECT set_config('myria.tenant', '{TENANT}', true)")
    yield connection
    await connection.close()


async def test_the_fill_is_what_it_should_be(serving: asyncpg.Connection[Any]) -> None:
    """The log holds them all, half of them in one scope."""
    assert await serving.fetchval("SELECT count(*) FROM myria.events") == EVENTS
    assert await serving.fetchval("SELECT max(n) FROM (SELECT count(*) n FROM myria.events GROUP BY scope_id) x") >= (
        EVENTS // 2
    )


def test_every_read_is_examined() -> None:
    """A new read statement of the serving path must be added to the cases here."""
    found = {f"{subject}.{name}" for subject in ("events", "retrieval") for name in sql.subject(subject)}
    found |= {"vectors.of_scopes", "vectors.count", "vectors.new"}  # the others are of the control plane and of builds
    found |= {"scopes.people", "scopes.names", "scopes.names_beside"}
    assert found - WRITES == {case.name for case in CASES}


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("case", CASES, ids=str)
async def test_reads_use_index_conditions(serving: asyncpg.Connection[Any], case: Case, mode: str) -> None:
    """No sequential scan, and no index scan whose only condition is the tenant, in custom and in generic plans."""
    await serving.execute(f"SET LOCAL plan_cache_mode = {mode}")
    await serving.execute(f"PREPARE one AS {sql(case.name)}")
    values = ", ".join("NULL" if value is None else "'" + value.replace("'", "''") + "'" for value in case.arguments)
    text = await serving.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE one{f'({values})' if values else ''}")
    (plan,) = json.loads(text)
    problems = list(_scans(plan["Plan"], limited=False))
    conditions = _conditions(plan["Plan"])
    problems += [
        f"{column} is no index condition" for column in MUST_BOUND.get(case.name, ()) if column not in conditions
    ]
    assert not problems, "\n".join(problems) + "\n" + json.dumps(plan, indent=1)[:4000]


@pytest.mark.parametrize("oldest_first", [False, True])
async def test_events_are_listed_in_either_order_by_an_index(
    serving: asyncpg.Connection[Any], oldest_first: bool
) -> None:
    """A page of the log sorts nothing, however long the log is."""
    arguments: tuple[Any, ...] = (TENANT, 0, [], [], *[None] * 6, 500, oldest_first)
    plan = [row[0] for row in await serving.fetch(f"EXPLAIN {sql('browse.events')}", *arguments)]
    assert not any("Sort" in line for line in plan), "\n".join(plan)


async def test_a_name_is_offered_without_sorting_its_events(serving: asyncpg.Connection[Any]) -> None:
    """Whether somebody has an event to be seen is told by the newest ones, however long the log of a scope is."""
    for name, arguments in (
        ("scopes.names", (TENANT, "", "", 100, 50)),
        ("scopes.names_beside", (TENANT, ["agent_3"], 500, 100, 50)),
    ):
        plan = [row[0] for row in await serving.fetch(f"EXPLAIN {sql(name)}", *arguments)]
        assert any("events_scope_time" in line for line in plan), "\n".join(plan)
        assert not any("Sort Key: e." in line for line in plan), "\n".join(plan)


async def test_the_newest_build_is_found_by_an_index(serving: asyncpg.Connection[Any]) -> None:
    """Whatever looks at builds again and again sorts nothing, however many there were."""
    await serving.execute("SET LOCAL enable_seqscan = off")  # few builds are here
    plan = [row[0] for row in await serving.fetch(f"EXPLAIN {sql('builds.newest')}", TENANT)]
    assert not any("Sort" in line for line in plan), "\n".join(plan)


def _scans(plan: dict[str, Any], *, limited: bool) -> Iterator[str]:
    """Yield what is wrong with a plan: scans that read a whole tenant."""
    relation = plan.get("Relation Name")
    kind = plan["Node Type"]
    if relation is not None and relation not in SMALL:
        if kind == "Seq Scan":
            yield f"sequential scan of {relation}"
        elif "Index" in kind and not limited and not _is_selective(plan.get("Index Cond", "")):
            yield f"scan of a whole tenant in {plan['Index Name']}: {plan.get('Index Cond')}"
    if kind == "Bitmap Index Scan" and not _is_selective(plan.get("Index Cond", "")):
        yield f"bitmap of a whole tenant in {plan['Index Name']}: {plan.get('Index Cond')}"
    for below in plan.get("Plans", ()):
        yield from _scans(below, limited=limited or kind == "Limit")


def _conditions(plan: dict[str, Any]) -> str:
    """Return all index conditions of a plan."""
    return " ".join([plan.get("Index Cond", ""), *(_conditions(below) for below in plan.get("Plans", ()))])


def _is_selective(condition: str) -> bool:
    """Tell whether an index condition says more than the tenant."""
    parts = [part for part in condition.split(" AND ") if "tenant_id" not in part]
    return bool(parts)
