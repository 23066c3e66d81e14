-- name: lock
-- Vectors of a tenant are written by one at a time, and not while events are erased.
SELECT pg_advisory_xact_lock($1::bigint);

-- name: tenants_due
-- Tenants with events that came after everything had its vector.
SELECT t.tenant_id
FROM myria.tenants t
LEFT JOIN myria.vector_progress p ON p.tenant_id = t.tenant_id AND p.model = $1
WHERE t.suspended_at IS NULL AND t.deleting_at IS NULL
  AND coalesce((SELECT max(e.event_seq) FROM myria.events e WHERE e.tenant_id = t.tenant_id), 0) > coalesce(p.seen_seq, 0)
ORDER BY t.tenant_id;

-- name: standing
-- How far vectors are complete, the active snapshot's cutoff (up to which no event is still to be committed), and the
-- newest event.
SELECT coalesce((SELECT p.done_seq FROM myria.vector_progress p WHERE p.tenant_id = $1 AND p.model = $2), 0) AS done_seq,
       coalesce((SELECT s.cutoff FROM myria.active_snapshots a JOIN myria.snapshots s USING (tenant_id, snapshot_id)
                 WHERE a.tenant_id = $1), 0) AS cutoff,
       coalesce((SELECT max(e.event_seq) FROM myria.events e WHERE e.tenant_id = $1), 0) AS newest_seq;

-- name: missing
-- The oldest events past $3 that are not embedded yet, and were not erased.
SELECT e.event_seq, e.scope_id, e.payload
FROM myria.events e
WHERE e.tenant_id = $1 AND e.event_seq > $3 AND NOT e.internal
  AND NOT EXISTS (SELECT FROM myria.event_vectors v WHERE v.tenant_id = $1 AND v.model = $2 AND v.event_seq = e.event_seq)
  AND NOT EXISTS (SELECT FROM myria.erased x
                  WHERE x.tenant_id = $1 AND x.event_seq = e.event_seq AND x.erased_at IS NOT NULL)
ORDER BY e.event_seq
LIMIT $4;

-- name: missing_newest
-- The same, but the newest.
SELECT e.event_seq, e.scope_id, e.payload
FROM myria.events e
WHERE e.tenant_id = $1 AND e.event_seq > $3 AND NOT e.internal
  AND NOT EXISTS (SELECT FROM myria.event_vectors v WHERE v.tenant_id = $1 AND v.model = $2 AND v.event_seq = e.event_seq)
  AND NOT EXISTS (SELECT FROM myria.erased x
                  WHERE x.tenant_id = $1 AND x.event_seq = e.event_seq AND x.erased_at IS NOT NULL)
ORDER BY e.event_seq DESC
LIMIT $4;

-- name: known
SELECT t.digest FROM myria.text_vectors t WHERE t.tenant_id = $1 AND t.model = $2 AND t.digest = ANY ($3::bytea[]);

-- name: keep
-- Vectors of events that were not erased meanwhile. A text without a vector here ($6) is one that had one before; where
-- that is gone, the event is left for another time. Of how many events it is kept whose vector they have.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest($3::bigint[], $4::bigint[], $5::bytea[], $6::bytea[]) AS g (event_seq, scope_id, digest, vector)
), kept AS (
    INSERT INTO myria.event_vectors (tenant_id, model, event_seq, scope_id, digest)
    SELECT $1, $2, g.event_seq, g.scope_id, g.digest
    FROM given g
    WHERE NOT EXISTS (SELECT FROM myria.erased x
                      WHERE x.tenant_id = $1 AND x.event_seq = g.event_seq AND x.erased_at IS NOT NULL)
      AND (g.digest IS NULL OR g.vector IS NOT NULL
           OR EXISTS (SELECT FROM myria.text_vectors t WHERE t.tenant_id = $1 AND t.model = $2 AND t.digest = g.digest))
    ON CONFLICT DO NOTHING
    RETURNING digest
), texts AS (
    INSERT INTO myria.text_vectors (tenant_id, model, digest, vector)
    SELECT DISTINCT ON (g.digest) $1, $2, g.digest, g.vector
    FROM given g WHERE g.vector IS NOT NULL AND g.digest IN (SELECT k.digest FROM kept k)
    ORDER BY g.digest
    ON CONFLICT DO NOTHING
)
SELECT count(*) FROM kept;

-- name: begin
-- Every model that has vectors of a tenant has a row of how far they are.
INSERT INTO myria.vector_progress (tenant_id, model, done_seq, seen_seq) VALUES ($1, $2, 0, 0) ON CONFLICT DO NOTHING;

-- name: advance
INSERT INTO myria.vector_progress AS p (tenant_id, model, done_seq, seen_seq) VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant_id, model) DO UPDATE
SET done_seq = greatest(p.done_seq, EXCLUDED.done_seq), seen_seq = greatest(p.seen_seq, EXCLUDED.seen_seq);

-- name: of_scopes
-- All vectors of scopes.
SELECT v.event_seq, v.scope_id, v.xid::text::bigint AS xid, t.vector
FROM unnest($3::bigint[]) AS wanted
CROSS JOIN LATERAL (
    SELECT * FROM myria.event_vectors x
    WHERE x.tenant_id = $1 AND x.model = $2 AND x.scope_id = wanted AND x.digest IS NOT NULL
    OFFSET 0
) v
CROSS JOIN LATERAL (
    SELECT y.vector FROM myria.text_vectors y WHERE y.tenant_id = $1 AND y.model = $2 AND y.digest = v.digest OFFSET 0
) t;

-- name: count
-- How many of these events have a vector.
SELECT count(*) FROM unnest($3::bigint[]) AS wanted
CROSS JOIN LATERAL (
    SELECT FROM myria.event_vectors x
    WHERE x.tenant_id = $1 AND x.model = $2 AND x.event_seq = wanted AND x.digest IS NOT NULL
    OFFSET 0
) v;

-- name: new
-- The vectors of a tenant from a transaction on, of these scopes.
SELECT v.event_seq, v.scope_id, v.xid::text::bigint AS xid, t.vector
FROM (
    SELECT * FROM myria.event_vectors x
    WHERE x.tenant_id = $1 AND x.model = $2 AND x.xid >= $3::bigint::text::xid8 AND x.digest IS NOT NULL
    OFFSET 0
) v
CROSS JOIN LATERAL (
    SELECT y.vector FROM myria.text_vectors y WHERE y.tenant_id = $1 AND y.model = $2 AND y.digest = v.digest OFFSET 0
) t
WHERE v.scope_id = ANY ($4::bigint[]);

-- name: use
-- The model is in use now; written once an hour for each tenant.
UPDATE myria.vector_progress SET used_at = now() WHERE model = $1 AND used_at < now() - interval '1 hour';

-- name: former
-- Models whose vectors nothing has used for $2 seconds; $1 is the one in use, NULL where none is.
SELECT p.tenant_id, p.model
FROM myria.vector_progress p
WHERE p.model IS DISTINCT FROM $1 AND p.used_at < now() - make_interval(secs => $2)
ORDER BY p.tenant_id, p.model
LIMIT 100;

-- name: remove_some
-- Some of a model's vectors, and that it is not complete any more. Of how many rows nothing is left.
WITH again AS (
    UPDATE myria.vector_progress SET done_seq = 0, seen_seq = 0 WHERE tenant_id = $1 AND model = $2
), events AS (
    DELETE FROM myria.event_vectors v
    USING (SELECT e.event_seq FROM myria.event_vectors e WHERE e.tenant_id = $1 AND e.model = $2
           ORDER BY e.event_seq LIMIT $3) part
    WHERE v.tenant_id = $1 AND v.model = $2 AND v.event_seq = part.event_seq
    RETURNING v.event_seq
), texts AS (
    DELETE FROM myria.text_vectors t
    USING (SELECT x.digest FROM myria.text_vectors x WHERE x.tenant_id = $1 AND x.model = $2
           ORDER BY x.digest LIMIT $3) part
    WHERE t.tenant_id = $1 AND t.model = $2 AND t.digest = part.digest
    RETURNING t.digest
)
SELECT (SELECT count(*) FROM events) + (SELECT count(*) FROM texts);

-- name: forget
DELETE FROM myria.vector_progress WHERE tenant_id = $1 AND model = $2;
