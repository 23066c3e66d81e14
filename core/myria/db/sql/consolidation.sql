-- name: now
SELECT clock_timestamp();

-- name: tenants_due
-- Tenants with a note that is due: one index look-up per tenant that has notes.
WITH RECURSIVE queues AS (
    (SELECT k.tenant_id FROM myria.note_looks k ORDER BY k.tenant_id LIMIT 1)
    UNION ALL
    SELECT (SELECT k.tenant_id FROM myria.note_looks k WHERE k.tenant_id > q.tenant_id ORDER BY k.tenant_id LIMIT 1)
    FROM queues q WHERE q.tenant_id IS NOT NULL
)
SELECT q.tenant_id
FROM queues q
JOIN myria.tenants t ON t.tenant_id = q.tenant_id AND t.suspended_at IS NULL AND t.deleting_at IS NULL
WHERE EXISTS (SELECT FROM myria.note_looks k WHERE k.tenant_id = q.tenant_id AND k.look_at <= clock_timestamp());

-- name: due
-- The notes that are due by $3, the longest due first: of all scopes where $2 is NULL, and of one context ($5) of some
-- scopes where it is not. Those that are gone have no row.
WITH due AS (
    (SELECT k.note_id, k.look_at, k.phase
     FROM unnest($2::bigint[]) AS visible
     CROSS JOIN LATERAL (
         SELECT n.note_id FROM myria.notes n
         WHERE n.tenant_id = $1 AND n.scope_id = visible AND n.context_id = $5 AND n.live
     ) known
     JOIN myria.note_looks k ON k.tenant_id = $1 AND k.note_id = known.note_id AND k.look_at <= $3
     WHERE $5::text IS NOT NULL
     ORDER BY k.look_at, k.note_id LIMIT $4)
    UNION ALL
    (SELECT k.note_id, k.look_at, k.phase FROM myria.note_looks k
     WHERE $2::bigint[] IS NULL AND k.tenant_id = $1 AND k.look_at <= $3
     ORDER BY k.look_at, k.note_id LIMIT $4)
    UNION ALL
    (SELECT k.note_id, k.look_at, k.phase
     FROM unnest($2::bigint[]) AS visible
     CROSS JOIN LATERAL (
         SELECT x.note_id, x.look_at, x.phase FROM myria.note_looks x
         WHERE x.tenant_id = $1 AND x.scope_id = visible AND x.look_at <= $3
         ORDER BY x.look_at LIMIT $4
     ) k
     WHERE $5::text IS NULL
     ORDER BY k.look_at, k.note_id LIMIT $4)
)
SELECT d.note_id, d.look_at, d.phase, n.live, n.kind, n.importance, n.anchor, n.session, n.context_id, n.created_at,
       n.changed_at, n.session_ends_at, n.reason,
       n.used_at, n.event_seq, e.payload
FROM due d
LEFT JOIN myria.standing_notes n ON n.tenant_id = $1 AND n.note_id = d.note_id AND n.live
LEFT JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = n.event_seq
ORDER BY d.look_at, d.note_id;

-- name: mark_likeness
UPDATE myria.note_looks k SET likeness = given.likeness
FROM unnest($2::text[], $3::bytea[]) AS given (note_id, likeness)
WHERE k.tenant_id = $1 AND k.note_id = given.note_id AND k.likeness IS DISTINCT FROM given.likeness;

-- name: alike
-- The live notes that say the same as one of these, itself among them, where there are several.
SELECT x.note_id, x.scope_id, x.likeness, n.event_seq, n.anchor, n.reason, e.event_id, s.participants
FROM (SELECT DISTINCT k.scope_id, k.likeness FROM myria.note_looks k
      WHERE k.tenant_id = $1 AND k.note_id = ANY ($2::text[]) AND k.likeness IS NOT NULL) wanted
CROSS JOIN LATERAL (
    SELECT k.note_id, k.scope_id, k.likeness FROM myria.note_looks k
    WHERE k.tenant_id = $1 AND k.scope_id = wanted.scope_id AND k.likeness = wanted.likeness
) x
JOIN myria.standing_notes n ON n.tenant_id = $1 AND n.note_id = x.note_id AND n.live
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = n.event_seq
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = x.scope_id
ORDER BY x.scope_id, n.event_seq;

-- name: contradictions
-- The newest links that say that two live notes contradict each other, and what decides whether one has expired.
SELECT l.from_id, l.to_id, one.payload AS from_payload, other.payload AS to_payload, n.kind, n.importance, n.anchor,
       n.created_at, n.changed_at, n.session_ends_at, n.reason, n.used_at, m.kind AS to_kind, m.importance AS to_importance,
       m.anchor AS to_anchor, m.created_at AS to_created_at, m.changed_at AS to_changed_at,
       m.session_ends_at AS to_session_ends_at, m.reason AS to_reason, m.used_at AS to_used_at
FROM myria.standing_links l
JOIN myria.standing_notes n ON n.tenant_id = $1 AND n.note_id = l.from_id AND n.live
JOIN myria.standing_notes m ON m.tenant_id = $1 AND m.note_id = l.to_id AND m.live
JOIN myria.events one ON one.tenant_id = $1 AND one.event_seq = n.event_seq
JOIN myria.events other ON other.tenant_id = $1 AND other.event_seq = m.event_seq
WHERE l.tenant_id = $1 AND l.relation = 'contradicts'
  AND ($2::bigint[] IS NULL OR (n.scope_id = ANY ($2) AND m.scope_id = ANY ($2)))
  AND NOT n.session AND NOT m.session
ORDER BY l.event_seq DESC
LIMIT $3;

-- name: look_again
-- A note that was changed meanwhile has another look_at, and is left as it is.
UPDATE myria.note_looks k SET phase = given.phase, look_at = given.next_at, ends_at = given.ends_at
FROM unnest($2::text[], $3::timestamptz[], $4::text[], $5::timestamptz[], $6::timestamptz[])
    AS given (note_id, look_at, phase, next_at, ends_at)
WHERE k.tenant_id = $1 AND k.note_id = given.note_id AND k.look_at = given.look_at;

-- name: prune
-- Notes that are not live need no look.
DELETE FROM myria.note_looks k
WHERE k.tenant_id = $1 AND k.note_id = ANY ($2::text[])
  AND NOT EXISTS (SELECT FROM myria.notes n WHERE n.tenant_id = $1 AND n.note_id = k.note_id AND n.live)
RETURNING k.note_id;

-- name: stale
-- Some of the notes that were stale when they were looked at last.
SELECT n.note_id, n.kind, n.topic, n.importance, n.anchor, n.created_at, n.changed_at, n.session_ends_at, n.reason,
       n.used_at, e.payload
FROM (
    (SELECT k.note_id FROM myria.note_looks k
     WHERE $2::bigint[] IS NULL AND k.tenant_id = $1 AND k.phase = 'stale' LIMIT $3)
    UNION ALL
    (SELECT k.note_id
     FROM unnest($2::bigint[]) AS visible
     CROSS JOIN LATERAL (
         SELECT x.note_id FROM myria.note_looks x
         WHERE x.tenant_id = $1 AND x.scope_id = visible AND x.phase = 'stale' LIMIT $3
     ) k
     LIMIT $3)
) shown
JOIN myria.standing_notes n ON n.tenant_id = $1 AND n.note_id = shown.note_id AND n.live
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = n.event_seq
ORDER BY n.changed_at, n.note_id;
