-- name: fold
-- The events were stored by the statement before; of two ratings of one note the later event counts.
INSERT INTO myria.note_evaluations AS v (tenant_id, note_id, scope_id, version, worth, event_seq, evaluated_at)
SELECT given.* FROM (
    SELECT DISTINCT ON (said.of->>'note', e.scope_id)
           e.tenant_id, said.of->>'note' AS note_id, e.scope_id, (said.of->>'version')::numeric::integer,
           (said.of->>'worth')::numeric::real, e.event_seq, e.occurred_at
    FROM unnest($2::bigint[]) AS stored (event_seq)
    CROSS JOIN LATERAL (
        SELECT * FROM myria.events x WHERE x.tenant_id = $1 AND x.event_seq = stored.event_seq OFFSET 0
    ) e
    CROSS JOIN LATERAL (SELECT e.payload->'evaluation') AS said (of)
    WHERE e.internal AND e.channel = 'notes'
      AND CASE WHEN jsonb_typeof(said.of->'note') = 'string' AND jsonb_typeof(said.of->'version') = 'number'
                AND jsonb_typeof(said.of->'worth') = 'number'
               THEN (said.of->>'version')::numeric BETWEEN 1 AND 1000000000 AND (said.of->>'worth')::numeric BETWEEN 0 AND 1
               ELSE false END
    ORDER BY said.of->>'note', e.scope_id, e.event_seq DESC
) given
ORDER BY given.note_id, given.scope_id
ON CONFLICT (tenant_id, note_id, scope_id) DO UPDATE SET
    version = EXCLUDED.version, worth = EXCLUDED.worth, event_seq = EXCLUDED.event_seq, evaluated_at = EXCLUDED.evaluated_at
WHERE v.event_seq < EXCLUDED.event_seq;

-- name: enqueue
-- Puts live notes into the outbox whose current version has no rating and does not wait for one.
INSERT INTO myria.note_evaluations_due AS d (tenant_id, note_id, version, due_at)
SELECT $1, n.note_id, n.version, clock_timestamp()
FROM myria.notes n
WHERE n.tenant_id = $1 AND n.note_id = ANY ($2::text[]) AND n.live AND NOT n.session
  AND NOT EXISTS (SELECT FROM myria.note_evaluations v
                  WHERE v.tenant_id = $1 AND v.note_id = n.note_id AND v.scope_id = n.scope_id AND v.version = n.version)
ORDER BY n.note_id
ON CONFLICT (tenant_id, note_id) DO UPDATE SET version = EXCLUDED.version, due_at = EXCLUDED.due_at, attempts = 0
WHERE d.version < EXCLUDED.version;

-- name: tenants_due
-- Tenants with a note that waits for a rating: one index look-up per tenant that has such.
WITH RECURSIVE queues AS (
    (SELECT d.tenant_id FROM myria.note_evaluations_due d ORDER BY d.tenant_id LIMIT 1)
    UNION ALL
    SELECT (SELECT d.tenant_id FROM myria.note_evaluations_due d WHERE d.tenant_id > q.tenant_id ORDER BY d.tenant_id LIMIT 1)
    FROM queues q WHERE q.tenant_id IS NOT NULL
)
SELECT q.tenant_id
FROM queues q
JOIN myria.tenants t ON t.tenant_id = q.tenant_id AND t.suspended_at IS NULL AND t.deleting_at IS NULL
WHERE EXISTS (SELECT FROM myria.note_evaluations_due d WHERE d.tenant_id = q.tenant_id AND d.due_at <= clock_timestamp());

-- name: claim
-- Takes the notes that wait longest. Taking one is an attempt, and says when the next one may be, so whoever dies after
-- it leaves it to a later run; $3 seconds double with each attempt, up to $4.
WITH taken AS MATERIALIZED (
    SELECT o.note_id FROM myria.note_evaluations_due o
    WHERE o.tenant_id = $1 AND o.due_at <= clock_timestamp()
    ORDER BY o.due_at, o.note_id LIMIT $2 FOR UPDATE SKIP LOCKED
)
UPDATE myria.note_evaluations_due d
SET attempts = d.attempts + 1, due_at = clock_timestamp() + make_interval(secs => least($3 * 2.0 ^ least(d.attempts, 30), $4))
FROM taken
WHERE d.tenant_id = $1 AND d.note_id = taken.note_id
RETURNING d.note_id, d.version, d.attempts;

-- name: notes
-- What claimed notes say now; those that are gone have no row.
SELECT n.note_id, n.version, n.scope_id, n.kind, n.topic, n.importance, n.anchor, n.created_at, n.changed_at,
       n.session_ends_at, n.reason, n.used_at, e.payload, s.participants
FROM myria.standing_notes n
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = n.event_seq
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = n.scope_id
WHERE n.tenant_id = $1 AND n.note_id = ANY ($2::text[]) AND n.live
ORDER BY n.scope_id, n.note_id;

-- name: done
-- Ends the wait of notes; one that was amended meanwhile waits on, with its new version.
DELETE FROM myria.note_evaluations_due d
USING unnest($2::text[], $3::integer[]) AS given (note_id, version)
WHERE d.tenant_id = $1 AND d.note_id = given.note_id AND d.version = given.version;
