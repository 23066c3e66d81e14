-- name: lock
-- Memories with one key follow each other: their numbers are given out, and repeats are looked for, under these locks.
SELECT pg_advisory_xact_lock(key) FROM unnest($1::bigint[]) AS key;

-- name: standing
-- Of keys ($2) the newest memory that was kept since ($3), among those that are shared with somebody ($4).
SELECT asked.position, found.note_id, found.event_id, found.source_event_key
FROM unnest($2::text[], $3::timestamptz[], $4::text[]) WITH ORDINALITY AS asked (key, since, shared, position)
LEFT JOIN LATERAL (
    SELECT n.note_id, e.event_id, e.source_event_key
    FROM myria.notes n
    JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = n.scope_id AND asked.shared = ANY (s.participants)
    CROSS JOIN LATERAL (
        SELECT x.event_id, x.source_event_key FROM myria.events x
        WHERE x.tenant_id = $1 AND x.event_seq = n.first_seq OFFSET 0
    ) e
    WHERE n.tenant_id = $1 AND n.dedup_key = asked.key AND n.created_at > asked.since
      AND (n.live OR n.review = 'held')
    ORDER BY n.created_at DESC LIMIT 1
) found ON true
ORDER BY asked.position;

-- name: custom_plans
-- `listed` is planned for the filters and the order that are given.
SET LOCAL plan_cache_mode = force_custom_plan;

-- name: listed
-- What scopes ($2) hold by time, newest first or, with $17, oldest first. Of what matches by the columns the first $13 are
-- looked at for a text ($14), and how many these were stands in each row; $15 of those that have it are answered, from $16 on.
-- Of many scopes not each one's first $13 notes are read: the $13th of each one's first few bounds how far the page goes.
WITH lists AS MATERIALIZED (
    SELECT seen.scope_id, named.agent_id FROM unnest($2::bigint[]) AS seen (scope_id)
    CROSS JOIN unnest(coalesce($3::text[], '{NULL}')) AS named (agent_id)
),
ended AS MATERIALIZED (SELECT z.note_id FROM myria.ended_notes($1, clock_timestamp()) z),
matching AS NOT MATERIALIZED (
    SELECT n.* FROM myria.notes n
    WHERE n.tenant_id = $1 AND n.live
      AND CASE WHEN $4::text IS NULL THEN NOT n.session ELSE n.context_id = $4 END
      AND ($5::text[] IS NULL OR n.kind = ANY ($5))
      AND ($6::text[] IS NULL OR coalesce(n.event_type, n.kind) = ANY ($6))
      AND ($7::text[] IS NULL OR n.tags @> $7)
      AND ($8::timestamptz IS NULL OR n.created_at > $8)
      AND ($9::timestamptz IS NULL OR n.created_at < $9)
      AND ($10::real IS NULL OR coalesce(n.given_importance, 0) >= $10)
      AND ($11::timestamptz IS NULL OR CASE WHEN $17::boolean THEN (n.created_at, n.first_seq) > ($11, $12::bigint)
                                            ELSE (n.created_at, n.first_seq) < ($11, $12) END)
      AND n.note_id NOT IN (SELECT z.note_id FROM ended z)
),
bound AS MATERIALIZED (
    SELECT coalesce((
        SELECT few.created_at FROM lists
        CROSS JOIN LATERAL (
            SELECT m.created_at FROM matching m
            WHERE m.scope_id = lists.scope_id AND ($3 IS NULL OR m.agent_id = lists.agent_id)
            ORDER BY CASE WHEN $17 THEN m.created_at END, CASE WHEN $17 THEN m.first_seq END, m.created_at DESC,
                     m.first_seq DESC
            LIMIT (SELECT CASE WHEN count(*) < 8 THEN 0 ELSE 4 + 2 * $13 / count(*) END FROM lists)
        ) few
        ORDER BY CASE WHEN $17 THEN few.created_at END, few.created_at DESC
        OFFSET $13 - 1 LIMIT 1
    ), CASE WHEN $17 THEN timestamptz 'infinity' ELSE '-infinity' END) AS created_at
),
candidates AS MATERIALIZED (
    SELECT k.* FROM lists
    CROSS JOIN LATERAL (
        SELECT m.note_id, m.created_at, m.first_seq, m.event_seq, m.context_id, m.version, m.changed_at
        FROM matching m
        WHERE m.scope_id = lists.scope_id AND ($3 IS NULL OR m.agent_id = lists.agent_id)
          AND CASE WHEN $17 THEN m.created_at <= (SELECT b.created_at FROM bound b)
                   ELSE m.created_at >= (SELECT b.created_at FROM bound b) END
        ORDER BY CASE WHEN $17 THEN m.created_at END, CASE WHEN $17 THEN m.first_seq END, m.created_at DESC, m.first_seq DESC
        LIMIT $13
    ) k
    ORDER BY CASE WHEN $17 THEN k.created_at END, CASE WHEN $17 THEN k.first_seq END, k.created_at DESC, k.first_seq DESC
    LIMIT $13
)
SELECT looked_at.number AS looked_at, found.*
FROM (SELECT count(*) AS number FROM candidates) looked_at
LEFT JOIN LATERAL (
    SELECT c.note_id, c.created_at, c.first_seq, c.context_id, c.version, c.changed_at, e.payload
    FROM candidates c
    CROSS JOIN LATERAL (
        SELECT x.payload FROM myria.events x WHERE x.tenant_id = $1 AND x.event_seq = c.event_seq OFFSET 0
    ) e
    WHERE $14::text IS NULL OR position($14 IN e.payload->>'text') > 0
    ORDER BY CASE WHEN $17 THEN c.created_at END, CASE WHEN $17 THEN c.first_seq END, c.created_at DESC, c.first_seq DESC
    LIMIT $15 OFFSET $16
) found ON true
ORDER BY CASE WHEN $17 THEN found.created_at END, CASE WHEN $17 THEN found.first_seq END, found.created_at DESC,
         found.first_seq DESC;

-- name: by_ids
-- Notes of any API, and who may see them.
SELECT n.note_id, n.created_at, n.first_seq, n.context_id, n.version, n.changed_at, n.session, e.payload, e.event_id, s.participants
FROM myria.notes n
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = n.scope_id
CROSS JOIN LATERAL (
    SELECT x.payload, x.event_id FROM myria.events x WHERE x.tenant_id = $1 AND x.event_seq = n.event_seq OFFSET 0
) e
WHERE n.tenant_id = $1 AND n.note_id = ANY ($2::text[]) AND n.live
  AND n.note_id NOT IN (SELECT z.note_id FROM myria.ended_notes($1, clock_timestamp()) z);

-- name: statistics
-- What an agent, under each of its names ($3), kept over REST in scopes ($2): of its newest memories at most $4.
SELECT count(*) AS memories, count(*) FILTER (WHERE x.created_at > $5) AS memories_24h,
       count(*) FILTER (WHERE x.created_at > $5 AND x.event_type = 'error') AS errors_24h, max(x.created_at) AS last_active_at,
       count(*) FILTER (WHERE x.kind = 'episodic') AS episodic,
       count(*) FILTER (WHERE x.kind = 'session') AS session,
       count(*) FILTER (WHERE x.kind = 'decision') AS decision,
       count(*) FILTER (WHERE x.kind = 'entity') AS entity
FROM (
    SELECT n.created_at, n.event_type, n.kind FROM myria.notes n
    WHERE n.tenant_id = $1 AND n.scope_id = ANY ($2::bigint[]) AND n.agent_id = ANY ($3::text[]) AND n.live
      AND n.event_type IS NOT NULL
    ORDER BY n.created_at DESC LIMIT $4
) x;

-- name: last_active
-- When each of these names ($3) kept its newest memory over REST in scopes ($2, ascending). A name has kept something in few
-- of them, so the scopes of each name are walked through, by one index entry each.
WITH RECURSIVE holding (agent_id, scope_id) AS (
    SELECT named, ($2::bigint[])[1] - 1 FROM unnest($3::text[]) AS named
    UNION ALL
    SELECT h.agent_id, (SELECT min(n.scope_id) FROM myria.notes n
                        WHERE n.tenant_id = $1 AND n.agent_id = h.agent_id AND n.scope_id > h.scope_id
                          AND n.scope_id <= $2[cardinality($2)] AND n.live)
    FROM holding h WHERE h.scope_id IS NOT NULL
)
SELECT h.agent_id, max(newest.created_at) AS last_active_at
FROM holding h
CROSS JOIN LATERAL (
    SELECT n.created_at FROM myria.notes n
    WHERE n.tenant_id = $1 AND n.scope_id = h.scope_id AND n.agent_id = h.agent_id AND n.live AND n.event_type IS NOT NULL
    ORDER BY n.created_at DESC LIMIT 1
) newest
WHERE h.scope_id = ANY ($2)
GROUP BY h.agent_id;
