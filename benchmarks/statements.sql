-- name: bare_table
-- The table of the bare endpoint: columns, defaults and indexes of the event log, without row-level security.
CREATE SCHEMA IF NOT EXISTS bare;
DROP TABLE IF EXISTS bare.events;
CREATE TABLE bare.events (LIKE myria.events INCLUDING ALL);
CREATE SEQUENCE IF NOT EXISTS bare.event_seq;
ALTER TABLE bare.events ALTER COLUMN event_seq SET DEFAULT nextval('bare.event_seq');

-- name: bare_insert
-- One event, one commit.
INSERT INTO bare.events (tenant_id, event_id, scope_id, occurred_at, channel, payload, type, context_id,
                         source_event_key, dedupe_key, topic_hints)
VALUES ('default', $1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
RETURNING event_seq;

-- name: bare_insert_many
-- Many events of one request, one commit.
INSERT INTO bare.events (tenant_id, event_id, scope_id, occurred_at, channel, payload, topic_hints)
SELECT 'default', i.event_id, i.scope_id, i.occurred_at, i.channel, i.payload, '[]'
FROM unnest($1::text[], $2::bigint[], $3::timestamptz[], $4::text[], $5::jsonb[])
     AS i (event_id, scope_id, occurred_at, channel, payload)
RETURNING event_seq;

-- name: bare_count
SELECT count(*) FROM bare.events;

-- name: event_count
SELECT count(*) FROM myria.events;

-- name: scope_sizes
-- Each scope with its participants and its non-internal events.
SELECT s.scope_id, s.participants, e.events
FROM (SELECT scope_id, count(*) AS events FROM myria.events WHERE NOT internal GROUP BY scope_id) e
JOIN myria.scopes s ON s.scope_id = e.scope_id
ORDER BY e.events DESC, s.scope_id;

-- name: scope_texts
-- Every so-many-th message of a scope, to make questions of: $2 messages spread evenly.
SELECT payload ->> 'text' AS text FROM (
    SELECT payload, row_number() OVER (ORDER BY occurred_at, event_seq) AS position, count(*) OVER () AS total
    FROM myria.events WHERE tenant_id = 'default' AND scope_id = $1 AND NOT internal
) e
WHERE position % greatest(1, total / $2) = 0 AND payload ->> 'text' <> ''
ORDER BY position LIMIT $2;

-- name: rows_written
-- Rows inserted, updated and deleted since the statistics began.
SELECT sum(n_tup_ins + n_tup_upd + n_tup_del)::bigint FROM pg_stat_user_tables WHERE schemaname = 'myria';

-- name: others_connected
-- Whether anybody else is connected to this database.
SELECT EXISTS (
    SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
);

-- name: database_bytes
SELECT pg_database_size(current_database());

-- name: analyze
ANALYZE;

-- name: checkpoint
CHECKPOINT;

-- name: force
-- A build that is measured runs to its end although nothing is new.
UPDATE myria.builds SET is_forced = true WHERE tenant_id = $1 AND build_id = $2;
