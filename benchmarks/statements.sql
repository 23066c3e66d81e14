-- name: bare_table
-- The table of the bare endpoint: columns, defaults and indexes of the event log, without row-level security.
CREATE SCHEMA IF NOT EXISTS bare;
DROP TABLE IF EXISTS bare.events;
CREATE TABLE bare.events (LIKE myria.events INCLUDING ALL);
CREATE SEQUENCE IF NOT EXISTS bare.event_seq;
ALTER TABLE bare.events ALTER COLUMN event_seq SET DEFAULT nextval('bare.event_seq');

-- name: bare_insert
-- One event, one commit.
INSERT INTO bare.events (tenant_id, event_id, scope_id, occurred_at, channel, type, context_id, source_event_key,
                         dedupe_key, payload, topic_hints)
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

-- name: durability
-- What decides the price of a commit.
SELECT name, setting FROM pg_settings
WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers', 'max_wal_size', 'server_version')
ORDER BY name;

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
-- Rows inserted, updated and deleted since the statistics began, by table.
SELECT relname AS table, n_tup_ins AS inserted, n_tup_upd AS updated, n_tup_del AS deleted
FROM pg_stat_user_tables WHERE schemaname = 'myria' ORDER BY relname;

-- name: others_connected
-- Whether anybody else is connected to this database.
SELECT EXISTS (
    SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
);

-- name: backends
-- The processes of PostgreSQL that serve others of this database.
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid();

-- name: some_event
-- An event of a scope, of its middle.
SELECT event_id FROM (
    SELECT event_id, event_seq, count(*) OVER () AS total, row_number() OVER (ORDER BY event_seq) AS position
    FROM myria.events WHERE tenant_id = 'default' AND scope_id = $1 AND NOT internal
) e
WHERE position = greatest(1, total / 2);

-- name: database_bytes
SELECT pg_database_size(current_database());

-- name: table_bytes
-- What some tables take, indexes included.
SELECT sum(pg_total_relation_size(format('myria.%I', name)::regclass))::bigint FROM unnest($1::text[]) AS name;

-- name: newest_build
SELECT build_id, status, started_at, finished_at, counts, error,
       extract(epoch FROM finished_at - started_at)::float8 AS took_s
FROM myria.builds ORDER BY created_at DESC LIMIT 1;

-- name: newest_snapshots
SELECT snapshot_id, status FROM myria.snapshots WHERE tenant_id = 'default' ORDER BY created_at DESC LIMIT $1;

-- name: analyze
ANALYZE;

-- name: checkpoint
CHECKPOINT;

-- name: force
-- A build that is measured runs to its end although nothing is new.
UPDATE myria.builds SET is_forced = true WHERE tenant_id = $1 AND build_id = $2;

-- name: source_keys
SELECT event_id, source_event_key FROM myria.events WHERE tenant_id = 'default' AND source_event_key IS NOT NULL;

-- name: some_texts
-- Texts of messages, spread over the log.
SELECT payload->>'text' AS text FROM myria.events
WHERE tenant_id = 'default' AND type = 'message' AND length(payload->>'text') > 40
ORDER BY event_id LIMIT $1;

-- name: spread_events
-- Events spread evenly over the log.
SELECT event_id FROM (
    SELECT event_id, row_number() OVER (ORDER BY event_seq) AS position, count(*) OVER () AS total
    FROM myria.events WHERE tenant_id = 'default' AND NOT internal
) e
WHERE position % greatest(1, total / $1) = 0
ORDER BY position LIMIT $1;

-- name: peer_words_table
-- What somebody makes who searches texts with PostgreSQL alone.
DROP TABLE IF EXISTS peer_words;
CREATE TABLE peer_words (
    number integer PRIMARY KEY,
    conversation text NOT NULL,
    text text NOT NULL,
    words tsvector GENERATED ALWAYS AS (to_tsvector('english', text)) STORED
);
CREATE INDEX ON peer_words (conversation);
CREATE INDEX ON peer_words USING gin (words);

-- name: peer_words_insert
INSERT INTO peer_words (number, conversation, text) VALUES ($1, $2, $3);

-- name: peer_words_search
-- Any of the question's words; among equals the newest.
SELECT m.number
FROM peer_words m, CAST(replace(plainto_tsquery('english', $1)::text, '&', '|') AS tsquery) AS asked
WHERE m.conversation = $2 AND m.words @@ asked
ORDER BY ts_rank(m.words, asked) DESC, m.number DESC
LIMIT $3;

-- name: peer_trigrams_table
CREATE EXTENSION IF NOT EXISTS pg_trgm;
DROP TABLE IF EXISTS peer_trigrams;
CREATE TABLE peer_trigrams (number integer PRIMARY KEY, conversation text NOT NULL, text text NOT NULL);
CREATE INDEX ON peer_trigrams (conversation);

-- name: peer_trigrams_insert
INSERT INTO peer_trigrams (number, conversation, text) VALUES ($1, $2, $3);

-- name: peer_trigrams_search
-- How much each of the question's words is like one of the text, in sum.
SELECT number FROM peer_trigrams WHERE conversation = $2
ORDER BY (SELECT sum(word_similarity(word, text)) FROM unnest($1::text[]) AS word) DESC NULLS LAST, number DESC
LIMIT $3;

-- name: peer_fused_table
-- Vectors are compared exactly: a conversation has some hundred.
CREATE EXTENSION IF NOT EXISTS vector;
DROP TABLE IF EXISTS peer_fused;
CREATE TABLE peer_fused (
    number integer PRIMARY KEY,
    conversation text NOT NULL,
    text text NOT NULL,
    words tsvector GENERATED ALWAYS AS (to_tsvector('english', text)) STORED,
    meaning vector NOT NULL
);
CREATE INDEX ON peer_fused (conversation);
CREATE INDEX ON peer_fused USING gin (words);

-- name: peer_fused_insert
INSERT INTO peer_fused (number, conversation, text, meaning) VALUES ($1, $2, $3, CAST($4::text AS vector));

-- name: peer_fused_search
-- The 60 best by words and by vectors, fused by reciprocal ranks.
WITH asked AS (
    SELECT CAST(replace(plainto_tsquery('english', $1)::text, '&', '|') AS tsquery) AS words,
           CAST($4::text AS vector) AS meaning
),
by_words AS (
    SELECT number, row_number() OVER (ORDER BY ts_rank(m.words, asked.words) DESC, number DESC) AS place
    FROM peer_fused m, asked WHERE m.conversation = $2 AND m.words @@ asked.words
    ORDER BY place LIMIT 60
),
by_meaning AS (
    SELECT number, row_number() OVER (ORDER BY m.meaning <=> asked.meaning, number DESC) AS place
    FROM peer_fused m, asked WHERE m.conversation = $2
    ORDER BY place LIMIT 60
)
SELECT number FROM by_words FULL JOIN by_meaning USING (number)
ORDER BY coalesce(1.0 / (60 + by_words.place), 0) + coalesce(1.0 / (60 + by_meaning.place), 0) DESC, number DESC
LIMIT $3;

-- name: build_span
-- When the only build began and ended, in seconds since 1970.
SELECT extract(epoch FROM started_at)::float8 AS began, extract(epoch FROM finished_at)::float8 AS ended
FROM myria.builds;

-- name: root_renderings
SELECT scope_id, root_rendering_id FROM myria.scope_roots ORDER BY scope_id, number;

-- name: vector_search_table
-- As pgvector keeps vectors in half precision, which holds signed bytes exactly.
CREATE EXTENSION IF NOT EXISTS vector;
DROP TABLE IF EXISTS vector_search;
CREATE TABLE vector_search (scope_id bigint NOT NULL, event_seq bigint NOT NULL, kept bytea NOT NULL, meaning halfvec(384) NOT NULL);

-- name: vector_search_key
-- By scope, as vectors of visible scopes are looked up.
CREATE INDEX vector_search_scope ON vector_search (scope_id);

-- name: vector_search_settled
VACUUM ANALYZE vector_search;

-- name: vector_search_load
-- What a process reads once for a scope, and keeps.
SELECT event_seq, kept FROM vector_search WHERE scope_id = ANY ($1::bigint[]);

-- name: vector_search_all
-- The likeness of every visible vector: its mean and deviation decide what each is worth.
SELECT event_seq, meaning <=> $2 AS distance FROM vector_search WHERE scope_id = ANY ($1::bigint[]);

-- name: vector_search_best
-- The nearest of the visible ones alone.
SELECT event_seq FROM vector_search WHERE scope_id = ANY ($1::bigint[]) ORDER BY meaning <=> $2 LIMIT 50;

-- name: vector_search_hnsw
CREATE INDEX vector_search_hnsw ON vector_search USING hnsw (meaning halfvec_cosine_ops);

-- name: vector_search_hnsw_bytes
SELECT pg_relation_size('vector_search_hnsw');
