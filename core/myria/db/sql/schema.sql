-- name: present
SELECT to_regclass('myria.schema_migrations') IS NOT NULL;

-- name: applied
SELECT version, name, checksum FROM myria.schema_migrations ORDER BY version;

-- name: register
INSERT INTO myria.schema_migrations (version, name, checksum) VALUES ($1, $2, $3)
ON CONFLICT (version) DO UPDATE SET checksum = EXCLUDED.checksum, applied_at = now();

-- name: own_migration_lock
SELECT pg_advisory_xact_lock(7237120611);

-- name: own_roles_lock
-- Until the connection ends: a database is made outside of transactions.
SELECT pg_advisory_lock(7237120611);

-- name: server_version
SELECT current_setting('server_version_num')::integer;

-- name: roles
SELECT rolname FROM pg_catalog.pg_roles WHERE rolname = ANY($1::text[]);

-- name: has_foreign_transactions
-- Whether rows carry transaction numbers that this server never gave out: they came in a dump of another one. What this
-- statement sees of its own server's is below its xmax.
SELECT EXISTS (SELECT FROM myria.snapshots s WHERE s.tail_xid > pg_snapshot_xmax(pg_current_snapshot()))
    OR EXISTS (SELECT FROM myria.builds b WHERE b.revision >= pg_snapshot_xmax(pg_current_snapshot()))
    OR EXISTS (SELECT FROM myria.rebuild_requests r WHERE r.revision >= pg_snapshot_xmax(pg_current_snapshot()))
    OR EXISTS (
        SELECT FROM myria.scopes c
        CROSS JOIN LATERAL (
            SELECT FROM myria.events e
            WHERE e.tenant_id = c.tenant_id AND e.scope_id = c.scope_id
              AND e.xid >= pg_snapshot_xmax(pg_current_snapshot())
            LIMIT 1
        ) found
    );

-- name: last_foreign_event
-- The events of the dump end here: the sequence came with it, so those appended here have higher numbers.
SELECT max(e.event_seq) FROM myria.events e WHERE e.xid >= pg_snapshot_xmax(pg_current_snapshot());

-- name: adopt_events
-- Numbers from the server's own creation: older than any transaction of Myria's here. They rise with each snapshot's
-- cutoff, so that tail_xid goes on bounding scans of the tail closely.
UPDATE myria.events e SET xid = (3 + least(coalesce(width_bucket(e.event_seq, t.starts), 0), 100))::text::xid8
FROM (
    SELECT c.tenant_id, (SELECT array_agg(DISTINCT s.cutoff + 1 ORDER BY s.cutoff + 1)
                         FROM myria.snapshots s WHERE s.tenant_id = c.tenant_id) AS starts
    FROM (SELECT DISTINCT tenant_id FROM myria.scopes) c
) t
WHERE e.tenant_id = t.tenant_id AND e.event_seq <= $1;

-- name: adopt_withdrawals
UPDATE myria.withdrawn w SET xid = e.xid
FROM myria.events e WHERE e.tenant_id = w.tenant_id AND e.event_seq = w.by_event_seq AND w.xid <> e.xid;

-- name: adopt_snapshots
UPDATE myria.snapshots s SET tail_xid = least(
    (SELECT min(e.xid) FROM myria.events e WHERE e.tenant_id = s.tenant_id AND e.event_seq > s.cutoff),
    pg_snapshot_xmin(pg_current_snapshot())
);

-- name: adopt_builds
-- A trigger gives every row that is written its revision.
UPDATE myria.builds SET revision = '0' WHERE revision >= pg_snapshot_xmax(pg_current_snapshot());

-- name: adopt_requests
UPDATE myria.rebuild_requests SET revision = '0' WHERE revision >= pg_snapshot_xmax(pg_current_snapshot());

-- name: adopt_vectors
-- Readers ask for those past a transaction: all of the dump come before any of this server's.
UPDATE myria.event_vectors SET xid = '3' WHERE xid <> '3';

-- name: void_cursors
-- Cursors carry transaction numbers too.
UPDATE myria.installation
SET cursor_secret = sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8'));

-- name: tidy_events
VACUUM (ANALYZE) myria.events;

-- name: now
SELECT clock_timestamp();

-- name: vacuumed_since
-- The tables that were vacuumed since a moment, with the dead rows that some transaction may still read.
SELECT s.relname AS table_name, pg_total_relation_size(s.relid) AS bytes_now, s.n_dead_tup AS dead_rows
FROM pg_stat_user_tables s WHERE s.schemaname = 'myria' AND s.last_vacuum >= $1 ORDER BY s.relname;

-- name: vacuum_erased
-- Every table that an erasure changes.
VACUUM (ANALYZE) myria.events, myria.renderings, myria.search_blocks, myria.notes, myria.note_looks, myria.note_usage,
    myria.note_relations, myria.note_evaluations, myria.note_evaluations_due, myria.turns, myria.turn_sessions, myria.turn_extractions_due, myria.turn_shadows, myria.tool_feedback, myria.sessions, myria.unit_plans, myria.llm_calls, myria.builds, myria.build_tasks,
    myria.registrations, myria.notes_shown, myria.text_vectors, myria.event_vectors,
    myria.build_units, myria.snapshots, myria.rebuild_requests, myria.pointer_moves, myria.tenants, myria.access_log,
    myria.call_log, myria.erasures, myria.erased_words;
