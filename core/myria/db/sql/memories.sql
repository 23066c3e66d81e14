-- name: lock
-- Memories with one key follow each other: their numbers are given out, and repeats are looked for, under these locks.
SELECT pg_advisory_xact_lock(key) FROM unnest($1::bigint[]) AS key;

-- name: standing
-- Of keys ($2) the newest memory that was kept since ($3), among those that are shared with somebody ($4).
SELECT asked.position, found.note_id, found.event_id, found.source_event_key
FROM unnest($2::text[], $3::timestamptz[], $4::text[]) WITH ORDINALITY AS asked (key, since, shared, position)
LEFT JOIN LATERAL (
    SELECT m.note_id, e.event_id, e.source_event_key
    FROM myria.memories m
    JOIN myria.notes n ON n.tenant_id = $1 AND n.note_id = m.note_id AND n.live
    JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = m.scope_id AND asked.shared = ANY (s.participants)
    CROSS JOIN LATERAL (
        SELECT x.event_id, x.source_event_key FROM myria.events x
        WHERE x.tenant_id = $1 AND x.event_seq = m.first_seq OFFSET 0
    ) e
    WHERE m.tenant_id = $1 AND m.dedup_key = asked.key AND m.created_at > asked.since
    ORDER BY m.created_at DESC LIMIT 1
) found ON true
ORDER BY asked.position;

-- name: fold
-- The events were stored by the statement before. The rows of their notes are those that `notes.fold` would write.
WITH folded AS (
    INSERT INTO myria.notes AS n (tenant_id, note_id, scope_id, event_seq, first_seq, version, kind, topic, importance,
                                  anchor, context_id, session, digest, created_at, changed_at, live, lasts_days)
    SELECT v.tenant_id, v.note_id, v.scope_id, v.event_seq, v.first_seq, v.version, v.kind, v.topic, v.importance,
           v.anchor, v.context_id, v.session, v.digest, v.created_at, v.occurred_at, true, v.lasts_days
    FROM (
        SELECT DISTINCT ON (t.note_id) t.* FROM (
            SELECT u.*, first_value(u.event_seq) OVER w AS first_seq, first_value(u.scope_id) OVER w AS first_scope,
                   first_value(u.occurred_at) OVER w AS created_at
            FROM unnest($2::bigint[]) AS stored (event_seq)
            CROSS JOIN LATERAL (
                SELECT * FROM myria.note_versions x WHERE x.tenant_id = $1 AND x.event_seq = stored.event_seq OFFSET 0
            ) u
            WINDOW w AS (PARTITION BY u.note_id ORDER BY u.event_seq)
        ) t
        WHERE t.scope_id = t.first_scope
        ORDER BY t.note_id, t.event_seq DESC
    ) v
    ORDER BY v.scope_id, v.digest
    ON CONFLICT (tenant_id, note_id) DO UPDATE SET
        event_seq = EXCLUDED.event_seq, version = EXCLUDED.version, kind = EXCLUDED.kind, topic = EXCLUDED.topic,
        importance = EXCLUDED.importance, anchor = EXCLUDED.anchor, context_id = EXCLUDED.context_id,
        session = EXCLUDED.session, digest = EXCLUDED.digest, changed_at = EXCLUDED.changed_at, live = true,
        lasts_days = EXCLUDED.lasts_days
    WHERE n.scope_id = EXCLUDED.scope_id AND n.event_seq < EXCLUDED.event_seq
    RETURNING n.note_id, n.scope_id, n.first_seq, n.created_at
)
INSERT INTO myria.memories AS k (tenant_id, note_id, scope_id, event_seq, first_seq, created_at, agent_id, context_id,
                                 memory_type, event_type, tags, importance, dedup_key)
SELECT DISTINCT ON (v.note_id) v.tenant_id, v.note_id, v.scope_id, v.event_seq, n.first_seq, n.created_at, v.agent_id,
       v.context_id, v.memory_type, v.event_type, v.tags, v.importance, v.dedup_key
FROM unnest($2::bigint[]) AS stored (event_seq)
CROSS JOIN LATERAL (
    SELECT * FROM myria.memory_versions x WHERE x.tenant_id = $1 AND x.event_seq = stored.event_seq OFFSET 0
) v
JOIN folded n ON n.note_id = v.note_id AND n.scope_id = v.scope_id
ORDER BY v.note_id, v.event_seq DESC
ON CONFLICT (tenant_id, note_id) DO UPDATE SET
    event_seq = EXCLUDED.event_seq, agent_id = EXCLUDED.agent_id, context_id = EXCLUDED.context_id,
    memory_type = EXCLUDED.memory_type, event_type = EXCLUDED.event_type, tags = EXCLUDED.tags,
    importance = EXCLUDED.importance, dedup_key = EXCLUDED.dedup_key
WHERE k.scope_id = EXCLUDED.scope_id AND k.event_seq < EXCLUDED.event_seq;

-- name: custom_plans
-- A statement with many filters is planned for those that are given.
SET LOCAL plan_cache_mode = force_custom_plan;

-- name: newest
-- Memories that $2 or $3 see, newest first. Of those that match, the first $14 are looked at ($15: whether their text says
-- this); $16 of them from $17 on are answered.
SELECT m.note_id, m.created_at, m.first_seq, m.context_id, n.version, n.changed_at, e.payload
FROM (
    SELECT k.* FROM myria.memories k
    WHERE k.tenant_id = $1
      AND ($4::text IS NULL OR k.agent_id = $4)
      AND ($5::text IS NULL OR k.context_id = $5)
      AND ($6::text[] IS NULL OR k.memory_type = ANY ($6))
      AND ($7::text[] IS NULL OR k.event_type = ANY ($7))
      AND ($8::text[] IS NULL OR k.tags @> $8)
      AND ($9::timestamptz IS NULL OR k.created_at > $9)
      AND ($10::timestamptz IS NULL OR k.created_at < $10)
      AND ($11::real IS NULL OR coalesce(k.importance, 0) >= $11)
      AND ($12::timestamptz IS NULL OR (k.created_at, k.first_seq) < ($12, $13::bigint))
    ORDER BY k.created_at DESC, k.first_seq DESC
    LIMIT $14
) m
JOIN myria.notes n ON n.tenant_id = $1 AND n.note_id = m.note_id AND n.live
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = m.scope_id AND (s.participants @> $2::text[] OR s.participants @> $3::text[])
CROSS JOIN LATERAL (
    SELECT x.payload, x.event_id FROM myria.events x WHERE x.tenant_id = $1 AND x.event_seq = m.event_seq OFFSET 0
) e
WHERE ($15::text IS NULL OR position($15 IN e.payload->>'text') > 0)
  AND m.note_id NOT IN (SELECT z.note_id FROM myria.ended_notes($1, clock_timestamp()) z)
ORDER BY m.created_at DESC, m.first_seq DESC
LIMIT $16 OFFSET $17;

-- name: oldest
-- As `newest`, the other way round.
SELECT m.note_id, m.created_at, m.first_seq, m.context_id, n.version, n.changed_at, e.payload
FROM (
    SELECT k.* FROM myria.memories k
    WHERE k.tenant_id = $1
      AND ($4::text IS NULL OR k.agent_id = $4)
      AND ($5::text IS NULL OR k.context_id = $5)
      AND ($6::text[] IS NULL OR k.memory_type = ANY ($6))
      AND ($7::text[] IS NULL OR k.event_type = ANY ($7))
      AND ($8::text[] IS NULL OR k.tags @> $8)
      AND ($9::timestamptz IS NULL OR k.created_at > $9)
      AND ($10::timestamptz IS NULL OR k.created_at < $10)
      AND ($11::real IS NULL OR coalesce(k.importance, 0) >= $11)
      AND ($12::timestamptz IS NULL OR (k.created_at, k.first_seq) > ($12, $13::bigint))
    ORDER BY k.created_at, k.first_seq
    LIMIT $14
) m
JOIN myria.notes n ON n.tenant_id = $1 AND n.note_id = m.note_id AND n.live
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = m.scope_id AND (s.participants @> $2::text[] OR s.participants @> $3::text[])
CROSS JOIN LATERAL (
    SELECT x.payload, x.event_id FROM myria.events x WHERE x.tenant_id = $1 AND x.event_seq = m.event_seq OFFSET 0
) e
WHERE ($15::text IS NULL OR position($15 IN e.payload->>'text') > 0)
  AND m.note_id NOT IN (SELECT z.note_id FROM myria.ended_notes($1, clock_timestamp()) z)
ORDER BY m.created_at, m.first_seq
LIMIT $16 OFFSET $17;

-- name: notes_newest
-- Notes of other faces in scopes ($2), newest first: of those that match by what the projection knows, the first $10 are
-- looked at, and how many these were stands in each row.
WITH candidates AS MATERIALIZED (
    SELECT k.* FROM unnest($2::bigint[]) AS seen (scope_id)
    CROSS JOIN LATERAL (
        SELECT n.note_id, n.created_at, n.first_seq, n.event_seq, n.context_id, n.version, n.changed_at
        FROM myria.notes n
        WHERE n.tenant_id = $1 AND n.scope_id = seen.scope_id AND n.live AND n.kind NOT IN ('episodic', 'session', 'entity')
          AND CASE WHEN $3::text IS NULL THEN NOT n.session ELSE n.context_id = $3 END
          AND ($4::text[] IS NULL OR n.kind = ANY ($4))
          AND ($5::timestamptz IS NULL OR n.created_at > $5)
          AND ($6::timestamptz IS NULL OR n.created_at < $6)
          AND ($7::real IS NULL OR n.importance >= $7)
          AND ($8::timestamptz IS NULL OR (n.created_at, n.first_seq) < ($8, $9::bigint))
          AND n.note_id NOT IN (SELECT z.note_id FROM myria.ended_notes($1, clock_timestamp()) z)
          AND NOT EXISTS (SELECT FROM myria.memories m WHERE m.tenant_id = $1 AND m.note_id = n.note_id)
        ORDER BY n.created_at DESC, n.first_seq DESC
        LIMIT $10
    ) k
    ORDER BY k.created_at DESC, k.first_seq DESC
    LIMIT $10
)
SELECT looked_at.number AS looked_at, found.*
FROM (SELECT count(*) AS number FROM candidates) looked_at
LEFT JOIN LATERAL (
    SELECT c.note_id, c.created_at, c.first_seq, c.context_id, c.version, c.changed_at, e.payload
    FROM candidates c
    CROSS JOIN LATERAL (
        SELECT x.payload FROM myria.events x WHERE x.tenant_id = $1 AND x.event_seq = c.event_seq OFFSET 0
    ) e
    WHERE ($11::text[] IS NULL OR coalesce(e.payload->>'speaker', 'default') = ANY ($11))
      AND ($12::text[] IS NULL OR e.payload->'note'->'keywords' ?& $12)
      AND ($13::text IS NULL OR position($13 IN e.payload->>'text') > 0)
    ORDER BY c.created_at DESC, c.first_seq DESC
    LIMIT $14
) found ON true
ORDER BY found.created_at DESC, found.first_seq DESC;

-- name: notes_oldest
-- As `notes_newest`, the other way round.
WITH candidates AS MATERIALIZED (
    SELECT k.* FROM unnest($2::bigint[]) AS seen (scope_id)
    CROSS JOIN LATERAL (
        SELECT n.note_id, n.created_at, n.first_seq, n.event_seq, n.context_id, n.version, n.changed_at
        FROM myria.notes n
        WHERE n.tenant_id = $1 AND n.scope_id = seen.scope_id AND n.live AND n.kind NOT IN ('episodic', 'session', 'entity')
          AND CASE WHEN $3::text IS NULL THEN NOT n.session ELSE n.context_id = $3 END
          AND ($4::text[] IS NULL OR n.kind = ANY ($4))
          AND ($5::timestamptz IS NULL OR n.created_at > $5)
          AND ($6::timestamptz IS NULL OR n.created_at < $6)
          AND ($7::real IS NULL OR n.importance >= $7)
          AND ($8::timestamptz IS NULL OR (n.created_at, n.first_seq) > ($8, $9::bigint))
          AND n.note_id NOT IN (SELECT z.note_id FROM myria.ended_notes($1, clock_timestamp()) z)
          AND NOT EXISTS (SELECT FROM myria.memories m WHERE m.tenant_id = $1 AND m.note_id = n.note_id)
        ORDER BY n.created_at, n.first_seq
        LIMIT $10
    ) k
    ORDER BY k.created_at, k.first_seq
    LIMIT $10
)
SELECT looked_at.number AS looked_at, found.*
FROM (SELECT count(*) AS number FROM candidates) looked_at
LEFT JOIN LATERAL (
    SELECT c.note_id, c.created_at, c.first_seq, c.context_id, c.version, c.changed_at, e.payload
    FROM candidates c
    CROSS JOIN LATERAL (
        SELECT x.payload FROM myria.events x WHERE x.tenant_id = $1 AND x.event_seq = c.event_seq OFFSET 0
    ) e
    WHERE ($11::text[] IS NULL OR coalesce(e.payload->>'speaker', 'default') = ANY ($11))
      AND ($12::text[] IS NULL OR e.payload->'note'->'keywords' ?& $12)
      AND ($13::text IS NULL OR position($13 IN e.payload->>'text') > 0)
    ORDER BY c.created_at, c.first_seq
    LIMIT $14
) found ON true
ORDER BY found.created_at, found.first_seq;

-- name: matching
-- How many memories match filters as those of `newest`, at most $12.
SELECT count(*) FROM (
    SELECT FROM myria.memories k
    WHERE k.tenant_id = $1
      AND ($2::text IS NULL OR k.agent_id = $2)
      AND ($3::text IS NULL OR k.context_id = $3)
      AND ($4::text[] IS NULL OR k.memory_type = ANY ($4))
      AND ($5::text[] IS NULL OR k.event_type = ANY ($5))
      AND ($6::text[] IS NULL OR k.tags @> $6)
      AND ($7::timestamptz IS NULL OR k.created_at > $7)
      AND ($8::timestamptz IS NULL OR k.created_at < $8)
      AND ($9::real IS NULL OR coalesce(k.importance, 0) >= $9)
      AND ($10::timestamptz IS NULL OR (k.created_at, k.first_seq) < ($10, $11::bigint))
    LIMIT $12
) found;

-- name: by_id
-- A note of any face, and who may see it.
SELECT n.note_id, n.created_at, n.first_seq, n.context_id, n.version, n.changed_at, e.payload, e.event_id, s.participants
FROM myria.notes n
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = n.scope_id
CROSS JOIN LATERAL (
    SELECT x.payload, x.event_id FROM myria.events x WHERE x.tenant_id = $1 AND x.event_seq = n.event_seq OFFSET 0
) e
WHERE n.tenant_id = $1 AND n.note_id = $2 AND n.live
  AND n.note_id NOT IN (SELECT z.note_id FROM myria.ended_notes($1, clock_timestamp()) z);

-- name: by_ids
-- Notes of any face, and who may see them.
SELECT n.note_id, n.created_at, n.first_seq, n.context_id, n.version, n.changed_at, n.session, e.payload, e.event_id, s.participants
FROM myria.notes n
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = n.scope_id
CROSS JOIN LATERAL (
    SELECT x.payload, x.event_id FROM myria.events x WHERE x.tenant_id = $1 AND x.event_seq = n.event_seq OFFSET 0
) e
WHERE n.tenant_id = $1 AND n.note_id = ANY ($2::text[]) AND n.live
  AND n.note_id NOT IN (SELECT z.note_id FROM myria.ended_notes($1, clock_timestamp()) z);

-- name: note_scopes
-- The scopes that $2 or $3 see and that hold notes of these kinds ($4) of other faces: of $2 the one in the fewest scopes
-- leads. Decisions ($5: wanted) are kept over REST too, so by them no scope is known that is shared with $3.
SELECT DISTINCT s.scope_id
FROM unnest(ARRAY[($3::text[])[1], (
    SELECT p FROM unnest($2::text[]) AS p
    ORDER BY (SELECT count(*) FROM (
        SELECT FROM myria.scope_members m WHERE m.tenant_id = $1 AND m.participant = p LIMIT 1025) few), p COLLATE "C"
    LIMIT 1)]) AS lead (participant)
JOIN myria.scope_members m ON m.tenant_id = $1 AND m.participant = lead.participant
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = m.scope_id
WHERE (s.participants @> $2::text[] OR s.participants @> $3::text[])
  AND (EXISTS (SELECT FROM myria.notes n
               WHERE n.tenant_id = $1 AND n.scope_id = s.scope_id AND n.live AND n.kind = ANY ($4::text[])
                 AND n.kind NOT IN ('episodic', 'session', 'entity'))
       OR ($5::boolean AND NOT s.participants @> $3::text[]
           AND EXISTS (SELECT FROM myria.notes n
                       WHERE n.tenant_id = $1 AND n.scope_id = s.scope_id AND n.live AND n.kind = 'decision')));

-- name: of_first_events
-- The memories that began with some events, as they stand.
SELECT first.event_id AS first_event_id, m.note_id, m.created_at, m.first_seq, m.context_id, n.version, n.changed_at,
       e.payload, first.payload AS first_payload
FROM unnest($2::text[]) AS wanted
JOIN myria.events first ON first.tenant_id = $1 AND first.event_id = wanted
JOIN myria.memories m ON m.tenant_id = $1 AND m.note_id = first.payload->'note'->>'id' AND m.first_seq = first.event_seq
JOIN myria.notes n ON n.tenant_id = $1 AND n.note_id = m.note_id AND n.live
CROSS JOIN LATERAL (
    SELECT x.payload FROM myria.events x WHERE x.tenant_id = $1 AND x.event_seq = m.event_seq OFFSET 0
) e;

-- name: statistics
-- What an agent, under each of its names, kept: of its newest memories at most $5.
SELECT count(*) AS memories, count(*) FILTER (WHERE x.created_at > $6) AS memories_24h,
       count(*) FILTER (WHERE x.created_at > $6 AND x.event_type = 'error') AS errors_24h, max(x.created_at) AS last_active_at,
       count(*) FILTER (WHERE x.memory_type = 'episodic') AS episodic,
       count(*) FILTER (WHERE x.memory_type = 'session') AS session,
       count(*) FILTER (WHERE x.memory_type = 'decision') AS decision,
       count(*) FILTER (WHERE x.memory_type = 'entity') AS entity
FROM (
    SELECT m.created_at, m.event_type, m.memory_type
    FROM myria.memories m
    JOIN myria.notes n ON n.tenant_id = $1 AND n.note_id = m.note_id AND n.live
    JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = m.scope_id AND (s.participants @> $2::text[] OR s.participants @> $3::text[])
    WHERE m.tenant_id = $1 AND m.agent_id = ANY ($4::text[])
    ORDER BY m.created_at DESC LIMIT $5
) x;

-- name: last_active
-- When each of these names kept its newest memory.
SELECT named AS agent_id, (
    SELECT m.created_at FROM myria.memories m
    JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = m.scope_id AND (s.participants @> $2::text[] OR s.participants @> $3::text[])
    WHERE m.tenant_id = $1 AND m.agent_id = named
    ORDER BY m.created_at DESC, m.first_seq DESC LIMIT 1) AS last_active_at
FROM unnest($4::text[]) AS named;
