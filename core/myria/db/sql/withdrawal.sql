-- name: lock_scopes
-- Withdrawals of one scope follow each other: their numbers are given out, and their state is read, under these locks.
SELECT pg_advisory_xact_lock(key) FROM unnest($1::bigint[]) AS key;

-- name: resolve
-- Events that a caller names, whose they are, and what withdrawals say of them: the newest, and the newest that decides
-- whether the event waits for a review or was refused.
SELECT e.event_id, e.event_seq, e.scope_id, e.occurred_at, e.channel, e.type, e.internal, s.participants,
       newest.reason, (
           SELECT w.reason FROM myria.withdrawn w
           WHERE w.tenant_id = $1 AND w.event_seq = e.event_seq AND w.reason IN ('held', 'refused', 'restored')
           ORDER BY w.by_event_seq DESC LIMIT 1
       ) AS decided, successor.event_id AS successor_id, encode(successor.dedupe_key, 'hex') AS successor_key,
       successor_scope.participants AS successor_participants,
       EXISTS (SELECT FROM myria.erased x WHERE x.tenant_id = $1 AND x.event_seq = e.event_seq) AS is_erased
FROM unnest($2::text[]) AS named
JOIN myria.events e ON e.tenant_id = $1 AND e.event_id = named
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = e.scope_id
LEFT JOIN LATERAL (
    SELECT w.reason, w.superseded_by FROM myria.withdrawn w
    WHERE w.tenant_id = $1 AND w.event_seq = e.event_seq
    ORDER BY w.by_event_seq DESC LIMIT 1
) newest ON true
LEFT JOIN myria.events successor ON successor.tenant_id = $1 AND successor.event_seq = newest.superseded_by
LEFT JOIN myria.scopes successor_scope ON successor_scope.tenant_id = $1 AND successor_scope.scope_id = successor.scope_id;

-- name: forgotten
-- What was forgotten, by whom, and neither restored nor erased since, among the newest $2 withdrawals of a tenant; newest
-- first.
SELECT e.event_id, CASE WHEN e.type = 'myria.note' THEN e.payload -> 'note' ->> 'id' END AS note_id,
       CASE WHEN e.type = 'myria.note' THEN e.payload -> 'note' ->> 'kind' END AS kind, e.occurred_at, e.utc_offset, e.channel,
       a.ingested_at, a.payload ->> 'by' AS by, s.participants
FROM (SELECT x.scope_id, x.event_seq, x.by_event_seq, x.reason FROM myria.withdrawn x
      WHERE x.tenant_id = $1 ORDER BY x.by_event_seq DESC LIMIT $2) w
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = w.scope_id
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = w.event_seq
JOIN myria.events a ON a.tenant_id = $1 AND a.event_seq = w.by_event_seq
WHERE w.reason = 'forgotten' AND NOT e.internal
  AND NOT EXISTS (SELECT FROM myria.withdrawn y
                  WHERE y.tenant_id = $1 AND y.event_seq = w.event_seq AND y.by_event_seq > w.by_event_seq)
  AND NOT EXISTS (SELECT FROM myria.erased x WHERE x.tenant_id = $1 AND x.event_seq = w.event_seq)
ORDER BY w.by_event_seq DESC, w.event_seq DESC;

-- name: acts
-- How an event that is not erased was withdrawn and restored, newest first; what replaced it is not among that.
SELECT w.reason, a.ingested_at, coalesce(a.payload ->> 'by', a.payload -> 'review' ->> 'by') AS by,
       a.payload -> 'review' ->> 'why' AS why, s.participants
FROM myria.events e
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = e.scope_id
JOIN myria.withdrawn w ON w.tenant_id = $1 AND w.event_seq = e.event_seq AND w.superseded_by IS NULL
JOIN myria.events a ON a.tenant_id = $1 AND a.event_seq = w.by_event_seq
WHERE e.tenant_id = $1 AND e.event_id = $2
  AND NOT EXISTS (SELECT FROM myria.erased x WHERE x.tenant_id = $1 AND x.event_seq = e.event_seq)
ORDER BY w.by_event_seq DESC LIMIT $3;

-- name: write_acts
-- What somebody forgot or restored, into the journal of access: one act for each who, and of each reason, however many
-- events it names. Of a note the act names the note. The statement before folded these withdrawals.
INSERT INTO myria.access_log (tenant_id, kind, actor, action, target, outcome, details)
SELECT $1, 'act', n.by, 'memory.' || n.reason, (array_agg(n.id ORDER BY n.first))[1], 'ok',
       jsonb_build_object('count', count(*), 'ids', (array_agg(n.id ORDER BY n.first))[:20])
FROM (
    SELECT a.payload ->> 'by' AS by, w.reason, min(w.event_seq) AS first,
           coalesce(CASE WHEN e.type = 'myria.note' THEN e.payload -> 'note' ->> 'id' END, e.event_id) AS id
    FROM unnest($2::bigint[]) AS stored (event_seq)
    JOIN myria.withdrawn w ON w.tenant_id = $1 AND w.by_event_seq = stored.event_seq
    CROSS JOIN LATERAL (
        SELECT x.payload FROM myria.events x WHERE x.tenant_id = $1 AND x.event_seq = stored.event_seq OFFSET 0
    ) a
    CROSS JOIN LATERAL (
        SELECT x.event_id, x.type, x.payload FROM myria.events x
        WHERE x.tenant_id = $1 AND x.event_seq = w.event_seq OFFSET 0
    ) e
    GROUP BY 1, 2, 4
) n
GROUP BY n.by, n.reason;

-- name: fold
-- The events were stored by the statement before.
INSERT INTO myria.withdrawn (tenant_id, scope_id, event_seq, by_event_seq, reason, superseded_by)
SELECT f.tenant_id, f.scope_id, f.event_seq, f.by_event_seq, f.reason, f.superseded_by
FROM unnest($2::bigint[]) AS stored (event_seq)
CROSS JOIN LATERAL (
    SELECT * FROM myria.withdrawn_of_log x WHERE x.tenant_id = $1 AND x.by_event_seq = stored.event_seq OFFSET 0
) f
ORDER BY f.event_seq, f.by_event_seq
ON CONFLICT DO NOTHING;
