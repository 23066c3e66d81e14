-- name: fold
-- The events were stored by the statement before. Rows go in digest order, so that two commits never wait for each other
-- crosswise; a digest that a live note of the scope has already is refused by its index. What is held is not live.
INSERT INTO myria.notes AS n (tenant_id, note_id, scope_id, event_seq, first_seq, version, kind, topic, importance,
                              anchor, context_id, session, digest, created_at, changed_at, live, lasts_days, agent_id,
                              event_type, tags, given_importance, dedup_key, review, review_seq)
SELECT v.tenant_id, v.note_id, v.scope_id, v.event_seq, v.first_seq, v.version, v.kind, v.topic, v.importance,
       v.anchor, v.context_id, v.session, v.digest, v.created_at, v.occurred_at, NOT v.held, v.lasts_days, v.agent_id,
       v.event_type, v.tags, v.given_importance, v.dedup_key,
       CASE WHEN v.held THEN 'held' END, CASE WHEN v.held THEN v.event_seq END
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
    session = EXCLUDED.session, digest = EXCLUDED.digest, changed_at = EXCLUDED.changed_at, live = EXCLUDED.live,
    lasts_days = EXCLUDED.lasts_days, agent_id = EXCLUDED.agent_id, event_type = EXCLUDED.event_type,
    tags = EXCLUDED.tags, given_importance = EXCLUDED.given_importance, dedup_key = EXCLUDED.dedup_key,
    review = EXCLUDED.review, review_seq = EXCLUDED.review_seq
WHERE n.scope_id = EXCLUDED.scope_id AND n.event_seq < EXCLUDED.event_seq;

-- name: newest
-- What the newest notes of scopes say that hold for longer than a session, at most $3, of each the first $4 characters.
SELECT n.note_id, n.event_seq,
       (SELECT jsonb_build_array(coalesce(left(e.payload->>'text', $4), ''), e.payload->'note'->'keywords')::text FROM myria.events e
        WHERE e.tenant_id = $1 AND e.event_seq = n.event_seq) AS said
FROM (
    SELECT k.note_id, k.event_seq FROM myria.notes k
    WHERE k.tenant_id = $1 AND k.live AND NOT k.session
      AND k.scope_id = ANY (ARRAY(
          SELECT s.scope_id FROM myria.scopes s WHERE s.tenant_id = $1 AND s.scope_key = ANY ($2::bytea[])))
    ORDER BY k.event_seq DESC LIMIT $3
) n;

-- name: of_versions
-- The live notes of which these events are the current versions. Whatever their number, one plan serves: PostgreSQL does not
-- look through the inner SELECT, else it would plan each call anew, for ten times what running it costs.
SELECT n.event_seq, n.note_id, n.kind, n.importance, n.anchor, n.created_at, n.changed_at, n.session_ends_at, n.reason,
       n.used_at, e.payload->>'text' AS text
FROM unnest((SELECT $2::bigint[])) AS wanted
CROSS JOIN LATERAL (
    SELECT * FROM myria.standing_notes x WHERE x.tenant_id = $1 AND x.event_seq = wanted AND x.live OFFSET 0
) n
CROSS JOIN LATERAL (
    SELECT y.payload FROM myria.events y WHERE y.tenant_id = $1 AND y.event_seq = n.event_seq OFFSET 0
) e;

-- name: fold_withdrawals
-- Whether a note is live follows its current version; the withdrawals were folded by the statement before. Of the notes
-- that they name, this makes those live, or those not live ($3), that should be.
UPDATE myria.notes n SET live = now.live, review = now.review, review_seq = now.review_seq
FROM (
    SELECT named.event_seq, said.reasons[1] = 'restored' AS live, decided.review,
           CASE WHEN decided.review IS NOT NULL THEN said.by_event_seq END AS review_seq
    FROM (SELECT DISTINCT x.event_seq FROM myria.withdrawn x
          WHERE x.tenant_id = $1 AND x.by_event_seq = ANY ($2::bigint[])) named
    CROSS JOIN LATERAL (
        SELECT array_agg(newest.reason ORDER BY newest.by_event_seq DESC) AS reasons, max(newest.by_event_seq) AS by_event_seq
        FROM (SELECT w.reason, w.by_event_seq FROM myria.withdrawn w
              WHERE w.tenant_id = $1 AND w.event_seq = named.event_seq
              ORDER BY w.by_event_seq DESC LIMIT 2) newest
    ) said
    CROSS JOIN LATERAL (
        SELECT CASE WHEN said.reasons[1] IN ('held', 'refused') THEN said.reasons[1]
                    WHEN said.reasons[1] = 'restored' AND said.reasons[2] IN ('held', 'refused') THEN 'approved' END AS review
    ) decided
) now
WHERE n.tenant_id = $1 AND n.event_seq = now.event_seq AND now.live = $3
  AND (n.live, n.review, n.review_seq) IS DISTINCT FROM (now.live, now.review, now.review_seq);

-- name: held_alike
-- The note of a scope that says the same ($5 under $3 and $4) and waits for a review; of facts, in their context ($6).
SELECT n.note_id FROM myria.notes n
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_key = $2
WHERE n.tenant_id = $1 AND n.scope_id = s.scope_id AND n.review = 'held'
  AND n.digest = sha256(convert_to(concat_ws(E'\n', $3::text, $4::text, $5::text), 'UTF8'))
  AND n.kind NOT IN ('episodic', 'session', 'entity')
UNION ALL
SELECT n.note_id FROM myria.notes n
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_key = $2
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = n.event_seq
WHERE n.tenant_id = $1 AND n.scope_id = s.scope_id AND n.review = 'held' AND n.context_id = $6
  AND n.kind = $3 AND n.kind IN ('fact_l0', 'fact_l1', 'fact_l2') AND e.payload->>'text' = $5
LIMIT 1;

-- name: live_by_digest
-- The live note of a scope that says the same.
SELECT n.note_id FROM myria.notes n
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_key = $2
WHERE n.tenant_id = $1 AND n.scope_id = s.scope_id AND n.live
  AND n.digest = sha256(convert_to(concat_ws(E'\n', $3::text, $4::text, $5::text), 'UTF8'));

-- name: current
-- Notes with what their current versions say, who may see them, what decides when they expire, and the last event that
-- changed each: that of its version, of a withdrawal or of a restoration.
SELECT n.note_id, n.version, n.live, n.kind, n.importance, n.anchor, n.context_id, n.created_at, n.changed_at,
       e.event_id, e.payload, s.participants, n.reason, n.session_ends_at, n.used_at, n.uses, greatest(n.event_seq, (
           SELECT max(w.by_event_seq) FROM myria.withdrawn w WHERE w.tenant_id = $1 AND w.event_seq = n.event_seq
       )) AS changed_by
FROM myria.standing_notes n
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = n.event_seq
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = n.scope_id
WHERE n.tenant_id = $1 AND n.note_id = ANY ($2::text[]);

-- name: versions
-- The events of a note's versions, newest first.
SELECT v.event_id FROM myria.versions_of($1, $2) v ORDER BY v.event_seq DESC;

-- name: gone_together
-- The earlier versions of a note that were withdrawn together with its current one and are not erased, each with the event
-- of the version after it; newest first. One that was withdrawn alone, before or since, is not among them.
SELECT v.event_id, v.successor_id
FROM (
    SELECT x.event_id, x.event_seq, newest.reason, newest.by_event_seq, lag(x.event_id) OVER later AS successor_id,
           first_value(newest.reason) OVER later AS gone_as, first_value(newest.by_event_seq) OVER later AS gone_by
    FROM myria.versions_of($1, $2) x
    LEFT JOIN LATERAL (
        SELECT w.reason, w.by_event_seq FROM myria.withdrawn w
        WHERE w.tenant_id = $1 AND w.event_seq = x.event_seq
        ORDER BY w.by_event_seq DESC LIMIT 1
    ) newest ON true
    WINDOW later AS (ORDER BY x.event_seq DESC)
) v
WHERE v.successor_id IS NOT NULL AND v.reason = v.gone_as AND v.by_event_seq >= v.gone_by
  AND NOT EXISTS (SELECT FROM myria.erased x WHERE x.tenant_id = $1 AND x.event_seq = v.event_seq)
ORDER BY v.event_seq DESC LIMIT $3;

-- name: of_events
-- What is known of hits: the note of which each is a version, and what withdrawals say of it, at a moment where one is
-- given: an event is superseded from the time of its successor on, else from when that was stored.
SELECT wanted.event_seq, n.note_id, n.first_seq, n.event_seq = wanted.event_seq AND n.live AS is_current, n.kind,
       n.importance, n.anchor, n.session, n.created_at, n.changed_at,
       CASE WHEN n.review = 'approved' AND n.event_seq = wanted.event_seq AND newest.reason = 'restored' THEN NULL
            ELSE newest.reason END AS reason,
       CASE WHEN n.session THEN CASE WHEN n.event_seq < x.begun_seq OR x.ended_seq IS NOT NULL THEN n.changed_at
            ELSE coalesce(x.last_at, n.changed_at) + coalesce(x.idle_s, 3600) * interval '1 second' END
            WHEN n.lasts_days IS NOT NULL
            THEN to_timestamp((floor(extract(epoch FROM n.changed_at) / 86400) + n.lasts_days)::double precision * 86400)
       END AS session_ends_at, u.used_at, u.uses, v.worth,
       n.kind = 'error' AND (
           EXISTS (SELECT FROM myria.standing_links l
                   JOIN myria.notes f ON f.tenant_id = $1 AND f.note_id = l.to_id AND f.live AND f.scope_id = n.scope_id
                   WHERE l.tenant_id = $1 AND l.from_id = n.note_id AND l.relation = 'resolved_by')
           OR EXISTS (SELECT FROM myria.standing_links l
                   JOIN myria.notes f ON f.tenant_id = $1 AND f.note_id = l.from_id AND f.live AND f.scope_id = n.scope_id
                   WHERE l.tenant_id = $1 AND l.to_id = n.note_id AND l.relation = 'resolved_by')) AS resolved
FROM unnest($2::bigint[], $3::text[], $4::bigint[]) AS wanted (event_seq, note_id, scope_id)
LEFT JOIN myria.notes n ON n.tenant_id = $1 AND n.note_id = wanted.note_id AND n.scope_id = wanted.scope_id
LEFT JOIN myria.note_usage u ON u.tenant_id = $1 AND u.note_id = n.note_id
LEFT JOIN myria.note_evaluations v
    ON v.tenant_id = $1 AND v.note_id = n.note_id AND v.scope_id = n.scope_id AND v.version = n.version
LEFT JOIN myria.sessions x ON n.session AND x.tenant_id = $1 AND x.scope_id = n.scope_id AND x.context_id = n.context_id
LEFT JOIN LATERAL (
    SELECT w.reason FROM myria.withdrawn w
    WHERE w.tenant_id = $1 AND w.event_seq = wanted.event_seq
      AND ($5::timestamptz IS NULL OR $5 >= coalesce(
          (SELECT b.occurred_at FROM myria.events b WHERE b.tenant_id = $1 AND b.event_seq = w.superseded_by),
          (SELECT b.ingested_at FROM myria.events b WHERE b.tenant_id = $1 AND b.event_seq = w.by_event_seq)))
    ORDER BY w.by_event_seq DESC LIMIT 1
) newest ON true;

-- name: is_followed
-- Whether something was said since an event.
SELECT EXISTS (
    SELECT FROM myria.events e JOIN myria.events f ON f.tenant_id = $1 AND f.event_seq > e.event_seq
    WHERE e.tenant_id = $1 AND e.event_id = $2 AND NOT f.internal AND f.occurred_at > e.occurred_at);

-- name: id_of_event
-- The note of which an event is a version.
SELECT e.payload->'note'->>'id' FROM myria.events e
WHERE e.tenant_id = $1 AND e.event_seq = $2 AND e.type = 'myria.note';

-- name: event_id
-- The event of a note's current version.
SELECT e.event_id FROM myria.notes n
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = n.event_seq
WHERE n.tenant_id = $1 AND n.note_id = $2;

-- name: history
-- What the versions of a note said, newest first. Of them one may be forgotten by itself. (The inner LIMIT ends the walk, in
-- its order.)
SELECT v.event_id, v.payload, v.occurred_at, v.context_id
FROM (
    SELECT c.* FROM myria.versions_of($1, $2) c
    WHERE coalesce((SELECT w.reason FROM myria.withdrawn w
                    WHERE w.tenant_id = $1 AND w.event_seq = c.event_seq
                    ORDER BY w.by_event_seq DESC LIMIT 1), 'restored') IN ('restored', 'superseded')
    LIMIT $3
) v
ORDER BY v.event_seq DESC;

-- name: successors
-- The notes that replaced a note, each in its turn, as far as they stand or were replaced themselves.
WITH RECURSIVE chain AS (
    SELECT n.note_id, n.event_seq, 0 AS steps FROM myria.notes n WHERE n.tenant_id = $1 AND n.note_id = $2
    UNION ALL
    SELECT s.note_id, s.event_seq, c.steps + 1
    FROM chain c
    CROSS JOIN LATERAL (
        SELECT w.reason, w.superseded_by FROM myria.withdrawn w
        WHERE w.tenant_id = $1 AND w.event_seq = c.event_seq ORDER BY w.by_event_seq DESC LIMIT 1
    ) newest
    JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = newest.superseded_by
    JOIN myria.notes s ON s.tenant_id = $1 AND s.note_id = e.payload->'note'->>'id'
    WHERE newest.reason = 'superseded' AND c.steps < 20
)
SELECT n.note_id, s.participants, n.kind, n.importance, n.anchor, n.created_at, n.changed_at, n.session_ends_at, n.reason,
       n.used_at
FROM chain c
JOIN myria.standing_notes n ON n.tenant_id = $1 AND n.note_id = c.note_id
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = n.scope_id
WHERE c.steps > 0 AND (n.live OR n.reason = 'superseded')
ORDER BY c.steps;

-- name: replaced_notes
-- The other notes that one ($2) replaced by some of its versions ($3): the newest hundred.
SELECT DISTINCT ON (e.event_seq, old.payload->'note'->>'id')
       old.payload->'note'->>'id' AS note_id, old.payload->>'text' AS text, s.participants
FROM unnest($3::text[]) AS version
CROSS JOIN LATERAL (SELECT x.event_seq FROM myria.events x WHERE x.tenant_id = $1 AND x.event_id = version OFFSET 0) e
CROSS JOIN LATERAL (
    SELECT r.event_seq FROM myria.replaced_events r WHERE r.tenant_id = $1 AND r.superseded_by = e.event_seq OFFSET 0
) replaced
CROSS JOIN LATERAL (SELECT * FROM myria.events x WHERE x.tenant_id = $1 AND x.event_seq = replaced.event_seq OFFSET 0) old
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = old.scope_id
WHERE old.type = 'myria.note' AND old.payload->'note'->>'id' <> $2
ORDER BY e.event_seq DESC, old.payload->'note'->>'id', old.event_seq DESC
LIMIT 100;

-- name: counted
-- Live notes of visible scopes, as many as a look may cost.
SELECT n.kind, n.topic, n.importance, n.anchor, n.created_at, n.changed_at, n.session_ends_at, n.reason, n.used_at, n.uses,
       n.event_seq, v.worth, char_length(e.payload->>'text') AS characters
FROM (
    SELECT x.* FROM myria.standing_notes x
    WHERE x.tenant_id = $1 AND x.scope_id = ANY ($2::bigint[]) AND x.live LIMIT $3
) n
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = n.event_seq
LEFT JOIN myria.note_evaluations v
    ON v.tenant_id = $1 AND v.note_id = n.note_id AND v.scope_id = n.scope_id AND v.version = n.version;

-- name: count_uses
-- A use keeps a note: it ends later.
WITH kept AS (
    UPDATE myria.note_looks k
    SET ends_at = myria.note_ends_at(n.kind, n.importance, n.anchor, n.changed_at, greatest(u.used_at, counted.used_at),
                                     n.lasts_days)
    FROM unnest($2::text[], $4::timestamptz[]) AS counted (note_id, used_at)
    JOIN myria.notes n ON n.tenant_id = $1 AND n.note_id = counted.note_id AND NOT n.session
    LEFT JOIN myria.note_usage u ON u.tenant_id = $1 AND u.note_id = counted.note_id
    WHERE k.tenant_id = $1 AND k.note_id = n.note_id AND k.ends_at IS NOT NULL
)
INSERT INTO myria.note_usage AS u (tenant_id, note_id, uses, used_at)
SELECT $1, n.note_id, counted.uses, counted.used_at
FROM unnest($2::text[], $3::bigint[], $4::timestamptz[]) AS counted (note_id, uses, used_at)
JOIN myria.notes n ON n.tenant_id = $1 AND n.note_id = counted.note_id
ORDER BY n.note_id
ON CONFLICT (tenant_id, note_id) DO UPDATE SET
    uses = u.uses + EXCLUDED.uses, used_at = greatest(u.used_at, EXCLUDED.used_at);

-- name: scopes_exactly
SELECT s.scope_id FROM myria.scopes s WHERE s.tenant_id = $1 AND s.scope_key = ANY ($2::bytea[]);

-- name: scopes_containing
-- The scopes of which all of these are members, found by the one of them that is in the fewest.
SELECT s.scope_id
FROM myria.scope_members m
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = m.scope_id
WHERE m.tenant_id = $1 AND m.participant = $2 AND s.participants @> $3::text[]
  AND EXISTS (SELECT FROM myria.notes n WHERE n.tenant_id = $1 AND n.scope_id = s.scope_id AND n.live);

-- name: of_first_events
-- The notes that began with some events, what their first versions said, and how they stand now.
SELECT first.event_id AS first_event_id, first.payload AS first_payload, first.payload->'note'->>'id' AS note_id, n.live, n.reason,
       n.created_at, n.first_seq, n.context_id, n.version, n.changed_at, e.payload
FROM unnest($2::text[]) AS wanted
CROSS JOIN LATERAL (
    SELECT x.event_id, x.payload FROM myria.events x WHERE x.tenant_id = $1 AND x.event_id = wanted OFFSET 0
) first
LEFT JOIN myria.standing_notes n ON n.tenant_id = $1 AND n.note_id = first.payload->'note'->>'id'
LEFT JOIN LATERAL (
    SELECT x.payload FROM myria.events x WHERE x.tenant_id = $1 AND x.event_seq = n.event_seq OFFSET 0
) e ON true;

-- name: nearby
-- What sessions kept next before and after some of their notes, at most $3 of each, for the same people. What ends with
-- another session than $4 is left out.
SELECT f.note_id AS of_note, f.changed_at AS of_moment, n.note_id, n.kind, n.importance, n.anchor, n.created_at, n.changed_at,
       n.session_ends_at, n.reason, n.used_at, e.payload->>'text' AS text
FROM unnest($2::text[]) AS given
CROSS JOIN LATERAL (
    SELECT x.* FROM myria.notes x
    WHERE x.tenant_id = $1 AND x.note_id = given AND x.live AND x.context_id IS NOT NULL OFFSET 0
) f
CROSS JOIN LATERAL (
    (SELECT b.event_seq FROM myria.notes b
     WHERE b.tenant_id = $1 AND b.scope_id = f.scope_id AND b.context_id = f.context_id AND b.live
       AND b.event_seq < f.event_seq AND (NOT b.session OR b.context_id = $4)
     ORDER BY b.event_seq DESC LIMIT $3)
    UNION ALL
    (SELECT a.event_seq FROM myria.notes a
     WHERE a.tenant_id = $1 AND a.scope_id = f.scope_id AND a.context_id = f.context_id AND a.live
       AND a.event_seq > f.event_seq AND (NOT a.session OR a.context_id = $4)
     ORDER BY a.event_seq LIMIT $3)
) near
JOIN myria.standing_notes n ON n.tenant_id = $1 AND n.event_seq = near.event_seq
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = near.event_seq
ORDER BY f.note_id, n.event_seq;
