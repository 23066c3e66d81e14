-- name: lock
-- Turns of one session follow each other: their numbers are given out, and their state is read, under these locks.
SELECT pg_advisory_xact_lock(key) FROM unnest($1::bigint[]) AS key;

-- name: try_lock
-- Whether nobody maintains the session; whoever asked does so until the transaction ends.
SELECT pg_try_advisory_xact_lock($1::bigint);

-- name: sessions_due
-- The sessions whose facts are due by now, the longest due first, of the facts that are due longest: at most $2.
SELECT s.owner, s.context_id, array_agg(DISTINCT s.scope_id ORDER BY s.scope_id) AS scope_ids
FROM (
    SELECT k.note_id, k.look_at FROM myria.note_looks k
    WHERE k.tenant_id = $1 AND k.look_at <= clock_timestamp()
    ORDER BY k.look_at LIMIT 20 * $2
) due
JOIN myria.notes n ON n.tenant_id = $1 AND n.note_id = due.note_id AND n.live
JOIN myria.turn_sessions s ON s.tenant_id = $1 AND s.context_id = n.context_id AND s.scope_id = n.scope_id
WHERE n.kind IN ('fact_l0', 'fact_l1', 'fact_l2')
GROUP BY s.owner, s.context_id
ORDER BY min(due.look_at), s.owner, s.context_id
LIMIT $2;

-- name: standing
-- Of a session ($2 owner, $3 context) whether a turn ($4) is stored, and the mark of the newest one.
SELECT EXISTS (SELECT FROM myria.turns t
               WHERE t.tenant_id = $1 AND t.owner = $2 AND t.context_id = $3 AND t.turn_id = $4) AS is_stored,
       (SELECT e.event_id FROM myria.events e
        WHERE e.tenant_id = $1 AND e.event_seq = (
            SELECT max(n.event_seq) FROM myria.turns n
            WHERE n.tenant_id = $1 AND n.owner = $2 AND n.context_id = $3)) AS newest_id;

-- name: before_marks
-- Of marks ($4 their ids) that come to sessions ($2 owner, $3 context): whether each is stored already, and the newest mark
-- of its session. OFFSET 0 keeps each look-up one by an index, also where PostgreSQL has no statistics yet.
SELECT stored.event_seq IS NOT NULL AS is_stored, newest.event_id AS newest_id
FROM unnest($2::bytea[], $3::text[], $4::text[]) WITH ORDINALITY AS asked (owner, context_id, event_id, position)
CROSS JOIN LATERAL (
    SELECT max(s.last_seq) AS event_seq FROM myria.turn_sessions s
    WHERE s.tenant_id = $1 AND s.owner = asked.owner AND s.context_id = asked.context_id
) last
LEFT JOIN LATERAL (
    SELECT x.event_seq FROM myria.events x WHERE x.tenant_id = $1 AND x.event_id = asked.event_id OFFSET 0
) stored ON true
LEFT JOIN LATERAL (
    SELECT x.event_id FROM myria.events x WHERE x.tenant_id = $1 AND x.event_seq = last.event_seq OFFSET 0
) newest ON true
ORDER BY asked.position;

-- name: fold
-- The events were stored by the statement before.
WITH marks AS (
    SELECT t.*
    FROM unnest($2::bigint[]) AS appended (event_seq)
    CROSS JOIN LATERAL (
        SELECT * FROM myria.turn_marks x WHERE x.tenant_id = $1 AND x.event_seq = appended.event_seq OFFSET 0
    ) t
), stored AS (
    INSERT INTO myria.turns (tenant_id, owner, context_id, turn_id, scope_id, event_seq, items)
    SELECT m.tenant_id, m.owner, m.context_id, m.turn_id, m.scope_id, m.event_seq, m.items FROM marks m
    ORDER BY m.event_seq
    ON CONFLICT DO NOTHING
    RETURNING *
)
INSERT INTO myria.turn_sessions AS s (tenant_id, owner, context_id, scope_id, first_seq, last_seq, turns, items)
SELECT n.tenant_id, n.owner, n.context_id, n.scope_id, min(n.event_seq), max(n.event_seq), count(*),
       sum(cardinality(n.items))
FROM stored n
GROUP BY n.tenant_id, n.owner, n.context_id, n.scope_id
ORDER BY n.owner, n.context_id, n.scope_id
ON CONFLICT (tenant_id, owner, context_id, scope_id) DO UPDATE SET
    first_seq = least(s.first_seq, EXCLUDED.first_seq), last_seq = greatest(s.last_seq, EXCLUDED.last_seq),
    turns = s.turns + EXCLUDED.turns, items = s.items + EXCLUDED.items;

-- name: sessions
-- The scopes of a session, and who may see each.
SELECT x.scope_id, x.turns, x.items, s.participants
FROM myria.turn_sessions x
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = x.scope_id
WHERE x.tenant_id = $1 AND x.owner = $2 AND x.context_id = $3
ORDER BY x.scope_id;

-- name: recent
-- The last items of a session in scopes ($4), oldest first; what was withdrawn is left out.
WITH newest AS (
    SELECT t.event_seq, t.items FROM myria.turns t
    WHERE t.tenant_id = $1 AND t.owner = $2 AND t.context_id = $3 AND t.scope_id = ANY ($4::bigint[])
    ORDER BY t.event_seq DESC LIMIT $5
), named AS (
    SELECT n.event_seq AS turn_seq, i.position, i.event_id
    FROM newest n CROSS JOIN LATERAL unnest(n.items) WITH ORDINALITY AS i (event_id, position)
    ORDER BY n.event_seq DESC, i.position DESC LIMIT $5
)
SELECT e.event_id, e.event_seq, e.payload
FROM named m
CROSS JOIN LATERAL (
    SELECT x.event_id, x.event_seq, x.payload, x.scope_id FROM myria.events x
    WHERE x.tenant_id = $1 AND x.event_id = m.event_id OFFSET 0
) e
WHERE e.scope_id = ANY ($4::bigint[]) AND NOT EXISTS (
    SELECT FROM (SELECT w.reason FROM myria.withdrawn w
                 WHERE w.tenant_id = $1 AND w.event_seq = e.event_seq ORDER BY w.by_event_seq DESC LIMIT 1) last
    WHERE last.reason <> 'restored')
ORDER BY m.turn_seq, m.position;

-- name: facts
-- The ids of the live facts of a context in scopes ($3), those that changed last first: at most $4.
SELECT n.note_id FROM myria.notes n
WHERE n.tenant_id = $1 AND n.scope_id = ANY ($3::bigint[]) AND n.context_id = $2 AND n.live
  AND n.kind IN ('fact_l0', 'fact_l1', 'fact_l2')
ORDER BY n.event_seq DESC LIMIT $4;

-- name: times_said
-- How many of the last turns of a session ($4) said each of these facts.
SELECT f.note_id, count(*) AS times
FROM (
    SELECT t.event_seq FROM myria.turns t
    WHERE t.tenant_id = $1 AND t.owner = $2 AND t.context_id = $3
    ORDER BY t.event_seq DESC LIMIT $4
) newest
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = newest.event_seq
CROSS JOIN LATERAL jsonb_array_elements_text(e.payload->'turn'->'facts') AS f (note_id)
WHERE f.note_id = ANY ($5::text[])
GROUP BY f.note_id;

-- name: days
-- How many turns and items of the last turns ($5) of a session came on each day in UTC.
SELECT to_char(e.occurred_at AT TIME ZONE 'UTC', 'YYYY/MM/DD') AS day, count(*) AS turns,
       sum(cardinality(newest.items))::bigint AS items, max(e.occurred_at) AS last_at
FROM (
    SELECT t.event_seq, t.items FROM myria.turns t
    WHERE t.tenant_id = $1 AND t.owner = $2 AND t.context_id = $3 AND t.scope_id = ANY ($4::bigint[])
    ORDER BY t.event_seq DESC LIMIT $5
) newest
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = newest.event_seq
GROUP BY 1 ORDER BY 1;

-- name: await_facts
-- A turn that is about to be stored waits for a model; it is looked for in a moment.
INSERT INTO myria.turn_extractions_due (tenant_id, owner, context_id, turn_id, due_at)
VALUES ($1, $2, $3, $4, clock_timestamp() + make_interval(secs => $5))
ON CONFLICT DO NOTHING;

-- name: tenants_awaiting_facts
-- Tenants with a turn whose time has come: one index look-up per tenant that has such.
WITH RECURSIVE queues AS (
    (SELECT d.tenant_id FROM myria.turn_extractions_due d ORDER BY d.tenant_id LIMIT 1)
    UNION ALL
    SELECT (SELECT d.tenant_id FROM myria.turn_extractions_due d WHERE d.tenant_id > q.tenant_id ORDER BY d.tenant_id LIMIT 1)
    FROM queues q WHERE q.tenant_id IS NOT NULL
)
SELECT q.tenant_id
FROM queues q
JOIN myria.tenants t ON t.tenant_id = q.tenant_id AND t.suspended_at IS NULL AND t.deleting_at IS NULL
WHERE EXISTS (SELECT FROM myria.turn_extractions_due d WHERE d.tenant_id = q.tenant_id AND d.due_at <= clock_timestamp());

-- name: claim_awaiting
-- As evaluations.claim, of turns: taking one is an attempt, and says when the next one may be.
WITH taken AS MATERIALIZED (
    SELECT o.owner, o.context_id, o.turn_id FROM myria.turn_extractions_due o
    WHERE o.tenant_id = $1 AND o.due_at <= clock_timestamp()
    ORDER BY o.due_at, o.owner, o.context_id, o.turn_id LIMIT $2 FOR UPDATE SKIP LOCKED
)
UPDATE myria.turn_extractions_due d
SET attempts = d.attempts + 1, due_at = clock_timestamp() + make_interval(secs => least($3 * 2.0 ^ least(d.attempts, 30), $4))
FROM taken
WHERE d.tenant_id = $1 AND d.owner = taken.owner AND d.context_id = taken.context_id AND d.turn_id = taken.turn_id
RETURNING d.owner, d.context_id, d.turn_id, d.attempts;

-- name: awaited
-- A turn ($2 owner, $3 context, $4 turn) as it is stored, and what went into it without what was withdrawn.
SELECT t.event_seq, t.scope_id, t.context_id, mark.occurred_at, s.participants, given.payloads
FROM myria.turns t
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = t.scope_id
CROSS JOIN LATERAL (
    SELECT e.occurred_at FROM myria.events e WHERE e.tenant_id = $1 AND e.event_seq = t.event_seq OFFSET 0
) mark
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(e.payload::text ORDER BY i.position), '{}') AS payloads
    FROM unnest(t.items) WITH ORDINALITY AS i (event_id, position)
    CROSS JOIN LATERAL (
        SELECT x.event_seq, x.payload, x.type, x.scope_id FROM myria.events x
        WHERE x.tenant_id = $1 AND x.event_id = i.event_id OFFSET 0
    ) e
    WHERE e.type = 'input_item' AND e.scope_id = t.scope_id AND NOT EXISTS (
        SELECT FROM (SELECT w.reason FROM myria.withdrawn w
                     WHERE w.tenant_id = $1 AND w.event_seq = e.event_seq ORDER BY w.by_event_seq DESC LIMIT 1) last
        WHERE last.reason <> 'restored')
) given
WHERE t.tenant_id = $1 AND t.owner = $2 AND t.context_id = $3 AND t.turn_id = $4;

-- name: awaited_no_longer
DELETE FROM myria.turn_extractions_due d
WHERE d.tenant_id = $1 AND d.owner = $2 AND d.context_id = $3 AND d.turn_id = $4;

-- name: tally_found
-- Count facts that a model found: $1 tiers, $2 how many of each.
SELECT myria.tally_found_facts($1::text[], $2::bigint[]);

-- name: keep_shadow
-- Of a call that is repeated the last comparison counts. While something is being erased, and a minute longer, none is
-- kept: it may name an erased session.
INSERT INTO myria.turn_shadows AS s (tenant_id, owner, context_id, turn_id, call, aspect, same, ours, theirs, missing, extra,
                                     compared_at)
SELECT $1, $2, $3, $4, $5, given.*, clock_timestamp()
FROM unnest($6::text[], $7::boolean[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[])
    AS given (aspect, same, ours, theirs, missing, extra)
WHERE NOT EXISTS (SELECT FROM myria.erasures x WHERE x.tenant_id = $1
                  AND coalesce(x.finished_at, 'infinity') > clock_timestamp() - interval '1 minute')
ORDER BY given.aspect
ON CONFLICT (tenant_id, owner, context_id, turn_id, call, aspect) DO UPDATE SET
    same = EXCLUDED.same, ours = EXCLUDED.ours, theirs = EXCLUDED.theirs, missing = EXCLUDED.missing, extra = EXCLUDED.extra,
    compared_at = EXCLUDED.compared_at;

-- name: shadows
-- How a tenant's answers compare with its hosts' own, by call and aspect.
SELECT s.call, s.aspect, count(*) AS compared, count(*) FILTER (WHERE s.same) AS same, sum(s.ours)::bigint AS ours,
       sum(s.theirs)::bigint AS theirs, sum(s.missing)::bigint AS missing, sum(s.extra)::bigint AS extra
FROM myria.turn_shadows s
WHERE s.tenant_id = $1
GROUP BY s.call, s.aspect
ORDER BY s.call DESC, s.aspect;

-- name: shadows_differing
-- The newest turns of which an aspect differed.
SELECT s.context_id, s.turn_id, s.call, s.aspect, s.ours, s.theirs, s.missing, s.extra, s.compared_at
FROM myria.turn_shadows s
WHERE s.tenant_id = $1 AND NOT s.same
ORDER BY s.compared_at DESC, s.context_id, s.turn_id, s.call, s.aspect
LIMIT $2;

-- name: forget_shadows
-- The next batch of comparisons that are too old.
DELETE FROM myria.turn_shadows s USING (
    SELECT o.tenant_id, o.owner, o.context_id, o.turn_id, o.call, o.aspect FROM myria.turn_shadows o
    WHERE o.compared_at < clock_timestamp() - make_interval(secs => $1) ORDER BY o.compared_at LIMIT $2) old
WHERE s.tenant_id = old.tenant_id AND s.owner = old.owner AND s.context_id = old.context_id AND s.turn_id = old.turn_id
  AND s.call = old.call AND s.aspect = old.aspect;
