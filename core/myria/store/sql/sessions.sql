-- name: lock
-- Events of one session follow each other: their numbers are given out, and their state is read, under these locks.
SELECT pg_advisory_xact_lock(key) FROM unnest($1::bigint[]) AS key;

-- name: fold
-- The events were stored by the statement before. The row that a session has stands for all its events before.
INSERT INTO myria.sessions AS x (tenant_id, scope_id, context_id, begun_seq, last_seq, last_at, idle_s, ended_seq)
SELECT DISTINCT ON (r.scope_id, r.context_id)
       $1, r.scope_id, r.context_id, max(coalesce(r.begun_seq, r.event_seq)) FILTER (WHERE r.begins) OVER run, r.event_seq,
       r.last_at, r.idle_s, CASE WHEN r.ends THEN r.event_seq END
FROM (
    SELECT s.*, max(s.occurred_at) OVER w AS last_at,
           s.begun_seq IS NOT NULL OR coalesce(
               lag(s.ends) OVER w
               OR s.occurred_at >= max(s.occurred_at) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
                                   + lag(s.idle_s) OVER w * interval '1 second', true) AS begins
    FROM (
        SELECT e.scope_id, e.context_id, e.event_seq, e.occurred_at, e.idle_s, e.ends, NULL::bigint AS begun_seq
        FROM myria.session_events e WHERE e.tenant_id = $1 AND e.event_seq = ANY ($2::bigint[])
        UNION ALL
        SELECT k.scope_id, k.context_id, k.last_seq, k.last_at, k.idle_s, k.ended_seq IS NOT NULL, k.begun_seq
        FROM (SELECT DISTINCT e.scope_id, e.context_id FROM myria.session_events e
              WHERE e.tenant_id = $1 AND e.event_seq = ANY ($2::bigint[])) named
        JOIN myria.sessions k ON k.tenant_id = $1 AND k.scope_id = named.scope_id AND k.context_id = named.context_id
    ) s
    WINDOW w AS (PARTITION BY s.scope_id, s.context_id ORDER BY s.event_seq)
) r
WINDOW run AS (PARTITION BY r.scope_id, r.context_id ORDER BY r.event_seq)
ORDER BY r.scope_id, r.context_id, r.event_seq DESC
ON CONFLICT (tenant_id, scope_id, context_id) DO UPDATE SET
    begun_seq = EXCLUDED.begun_seq, last_seq = EXCLUDED.last_seq, last_at = EXCLUDED.last_at,
    idle_s = EXCLUDED.idle_s, ended_seq = EXCLUDED.ended_seq;

-- name: look_at_ended
-- The session notes of sessions that these events ended are due.
UPDATE myria.note_looks k SET look_at = ended.occurred_at
FROM myria.session_events ended
JOIN myria.notes n ON n.tenant_id = $1 AND n.scope_id = ended.scope_id AND n.context_id = ended.context_id
                  AND n.live AND n.session AND n.event_seq < ended.event_seq
WHERE ended.tenant_id = $1 AND ended.event_seq = ANY ($2::bigint[]) AND ended.ends
  AND k.tenant_id = $1 AND k.note_id = n.note_id;
