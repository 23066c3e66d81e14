-- name: lock
-- Events of one session follow each other: their numbers are given out, and their state is read, under these locks.
SELECT pg_advisory_xact_lock(key) FROM unnest($1::bigint[]) AS key;

-- name: fold
-- The events were stored by the statement before. The row that a session has stands for all its events before.
WITH stored AS MATERIALIZED (
    SELECT e.* FROM unnest($2::bigint[]) AS named (event_seq)
    CROSS JOIN LATERAL (
        SELECT * FROM myria.session_events x WHERE x.tenant_id = $1 AND x.event_seq = named.event_seq OFFSET 0
    ) e
)
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
        FROM stored e
        UNION ALL
        SELECT k.scope_id, k.context_id, k.last_seq, k.last_at, k.idle_s, k.ended_seq IS NOT NULL, k.begun_seq
        FROM (SELECT DISTINCT e.scope_id, e.context_id FROM stored e) named
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
UPDATE myria.note_looks k SET look_at = ended.occurred_at, ends_at = ended.occurred_at
FROM unnest($2::bigint[]) AS stored (event_seq)
CROSS JOIN LATERAL (
    SELECT * FROM myria.session_events x WHERE x.tenant_id = $1 AND x.event_seq = stored.event_seq AND x.ends OFFSET 0
) ended
JOIN myria.notes n ON n.tenant_id = $1 AND n.scope_id = ended.scope_id AND n.context_id = ended.context_id
                  AND n.live AND n.session AND n.event_seq < ended.event_seq
WHERE k.tenant_id = $1 AND k.note_id = n.note_id;

-- name: of
-- The newest run of a session of a scope.
SELECT x.begun_seq, x.ended_seq
FROM myria.scopes s
JOIN myria.sessions x ON x.tenant_id = $1 AND x.scope_id = s.scope_id AND x.context_id = $3
WHERE s.tenant_id = $1 AND s.scope_key = $2;

-- name: core
-- Of visible scopes ($2) the anchors, the most important notes of each kind ($3), and those of these kinds that are among
-- the newest: at most $4 of each.
WITH candidates AS (
    SELECT best.event_seq
    FROM unnest($2::bigint[]) AS visible
    CROSS JOIN unnest($3::text[]) AS wanted
    CROSS JOIN LATERAL (
        SELECT n.event_seq FROM myria.notes n
        WHERE n.tenant_id = $1 AND n.scope_id = visible AND n.kind = wanted AND n.live AND NOT n.session
          AND n.kind NOT IN ('episodic', 'session', 'entity')
        ORDER BY n.importance DESC, n.event_seq DESC LIMIT $4
    ) best
    UNION
    SELECT best.event_seq
    FROM unnest($2::bigint[]) AS visible
    CROSS JOIN LATERAL (
        SELECT n.event_seq FROM myria.notes n
        WHERE n.tenant_id = $1 AND n.scope_id = visible AND n.anchor AND n.live AND NOT n.session
        ORDER BY n.importance DESC, n.event_seq DESC LIMIT $4
    ) best
    UNION
    SELECT recent.event_seq
    FROM unnest($2::bigint[]) AS visible
    CROSS JOIN LATERAL (
        SELECT n.event_seq, n.kind, n.session FROM myria.notes n
        WHERE n.tenant_id = $1 AND n.scope_id = visible AND n.live
        ORDER BY n.event_seq DESC LIMIT $4
    ) recent
    WHERE recent.kind = ANY ($3) AND NOT recent.session
), ranked AS (
    SELECT c.event_seq,
           row_number() OVER (PARTITION BY n.kind, n.anchor ORDER BY n.importance DESC, n.event_seq DESC) AS place,
           row_number() OVER (ORDER BY n.event_seq DESC) AS age
    FROM candidates c JOIN myria.notes n ON n.tenant_id = $1 AND n.event_seq = c.event_seq
)
SELECT n.note_id, n.event_seq, n.first_seq, n.kind, n.topic, n.importance, n.anchor, n.created_at, n.changed_at,
       n.session_ends_at, n.reason, n.used_at, e.payload
FROM ranked r
JOIN myria.standing_notes n ON n.tenant_id = $1 AND n.event_seq = r.event_seq
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = r.event_seq
WHERE r.place <= $4 OR r.age <= $4;

-- name: working
-- The newest notes of a session ($3) that end with it.
SELECT n.note_id, n.event_seq, n.first_seq, n.kind, n.topic, n.importance, n.anchor, n.created_at, n.changed_at,
       n.session_ends_at, n.reason, n.used_at, e.payload
FROM unnest($2::bigint[]) AS visible
CROSS JOIN LATERAL (
    SELECT x.* FROM myria.standing_notes x
    WHERE x.tenant_id = $1 AND x.scope_id = visible AND x.context_id = $3 AND x.session AND x.live
    ORDER BY x.event_seq DESC LIMIT $4
) n
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = n.event_seq
ORDER BY n.event_seq DESC LIMIT $4;

-- name: open_questions
-- The newest questions that reflections left open. Their details say so, or in former ones that nobody amended since the
-- beginning of their text ($3).
SELECT n.note_id, n.event_seq, n.first_seq, n.kind, n.topic, n.importance, n.anchor, n.created_at, n.changed_at,
       n.session_ends_at, n.reason, n.used_at, n.payload
FROM unnest($2::bigint[]) AS visible
CROSS JOIN LATERAL (
    SELECT x.*, e.payload FROM myria.standing_notes x
    JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = x.event_seq
    WHERE x.tenant_id = $1 AND x.scope_id = visible AND x.live AND x.topic = 'session_reflect' AND x.kind = 'fact'
      AND coalesce(lower(e.payload->'note'->'details'->>'resolution_status') = 'open', starts_with(e.payload->>'text', $3))
    ORDER BY x.event_seq DESC LIMIT $4
) n
ORDER BY n.event_seq DESC LIMIT $4;

-- name: newest
-- The newest notes, for their topics.
SELECT n.kind, n.topic, n.importance, n.anchor, n.created_at, n.changed_at, n.session_ends_at, n.reason, n.used_at,
       e.payload->'note'->'details' AS details
FROM unnest($2::bigint[]) AS visible
CROSS JOIN LATERAL (
    SELECT x.* FROM myria.standing_notes x
    WHERE x.tenant_id = $1 AND x.scope_id = visible AND x.live AND NOT x.session
    ORDER BY x.event_seq DESC LIMIT $3
) n
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = n.event_seq
ORDER BY n.event_seq DESC LIMIT $3;

-- name: show
-- A session ($2) was shown some notes; at most $4 are known of one. What was shown a day ago makes room, a little each time.
WITH old AS (
    DELETE FROM myria.notes_shown x
    WHERE x.tenant_id = $1 AND x.session_key IN (
        SELECT o.session_key FROM myria.notes_shown o
        WHERE o.tenant_id = $1 AND o.shown_at < clock_timestamp() - interval '1 day' AND o.session_key <> $2::bytea
        ORDER BY o.shown_at LIMIT 100 FOR UPDATE SKIP LOCKED)
)
INSERT INTO myria.notes_shown AS s (tenant_id, session_key, note_ids, shown_at)
VALUES ($1, $2::bytea, $3::text[], clock_timestamp())
ON CONFLICT (tenant_id, session_key) DO UPDATE SET
    note_ids = (ARRAY(SELECT DISTINCT added FROM unnest(EXCLUDED.note_ids) added)
                || ARRAY(SELECT before FROM unnest(s.note_ids) before
                         WHERE before <> ALL (EXCLUDED.note_ids)
                           AND s.shown_at >= clock_timestamp() - interval '1 day'))[:$4::integer],
    shown_at = EXCLUDED.shown_at;

-- name: shown
SELECT s.note_ids FROM myria.notes_shown s
WHERE s.tenant_id = $1 AND s.session_key = $2 AND s.shown_at >= clock_timestamp() - interval '1 day';

-- name: show_again
DELETE FROM myria.notes_shown WHERE tenant_id = $1 AND session_key = $2;
