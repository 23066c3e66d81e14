-- name: fold
-- The events were stored by the statement before. Rows go in the order of their keys, so that two commits never wait for
-- each other crosswise; of two links of one pair the later event counts.
INSERT INTO myria.note_links AS l (tenant_id, from_id, to_id, relation, event_seq)
SELECT given.* FROM (
    SELECT DISTINCT ON (said.link->>'from', said.link->>'to')
           e.tenant_id, said.link->>'from' AS from_id, said.link->>'to' AS to_id, said.link->>'relation', e.event_seq
    FROM myria.events e
    CROSS JOIN LATERAL (SELECT e.payload->'link' AS link) AS said
    WHERE e.tenant_id = $1 AND e.event_seq = ANY ($2::bigint[]) AND e.internal
      AND jsonb_typeof(said.link->'from') = 'string' AND jsonb_typeof(said.link->'to') = 'string'
      AND jsonb_typeof(said.link->'relation') = 'string'
    ORDER BY said.link->>'from', said.link->>'to', e.event_seq DESC
) given
ORDER BY given.from_id, given.to_id
ON CONFLICT (tenant_id, from_id, to_id) DO UPDATE SET relation = EXCLUDED.relation, event_seq = EXCLUDED.event_seq
WHERE l.event_seq < EXCLUDED.event_seq;

-- name: of_notes
-- The links of some notes in both directions, newest first, at most $3.
SELECT l.from_id, l.to_id, l.relation FROM (
    SELECT o.from_id, o.to_id, o.relation, o.event_seq FROM myria.note_links o
    WHERE o.tenant_id = $1 AND o.from_id = ANY ($2::text[])
    UNION
    SELECT i.from_id, i.to_id, i.relation, i.event_seq FROM myria.note_links i
    WHERE i.tenant_id = $1 AND i.to_id = ANY ($2::text[])
) l
ORDER BY l.event_seq DESC
LIMIT $3;

-- name: notes
-- What some notes say now, and who may see them; withdrawn ones are left out.
SELECT n.note_id, n.first_seq, e.event_id, n.kind, n.topic, n.importance, n.anchor, n.created_at, n.changed_at,
       n.context_id, n.session, e.payload, n.session_ends_at, n.reason, s.participants
FROM myria.standing_notes n
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = n.event_seq
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = n.scope_id
WHERE n.tenant_id = $1 AND n.note_id = ANY ($2::text[]) AND n.live;

-- name: history
-- The versions of a live note, newest first; what was forgotten is left out.
WITH RECURSIVE chain AS (
    SELECT e.event_seq, e.event_id, e.scope_id, e.occurred_at, e.payload
    FROM myria.notes n JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = n.event_seq
    WHERE n.tenant_id = $1 AND n.note_id = $2 AND n.live
    UNION ALL
    SELECT p.event_seq, p.event_id, p.scope_id, p.occurred_at, p.payload
    FROM chain c JOIN myria.events p ON p.tenant_id = $1 AND p.event_id = c.payload->'note'->>'previous'
        AND p.scope_id = c.scope_id AND p.event_seq < c.event_seq
    WHERE p.type = 'myria.note' AND p.payload->'note'->>'id' = $2
)
SELECT c.payload, c.occurred_at, s.participants
FROM chain c
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = c.scope_id
LEFT JOIN LATERAL (
    SELECT w.reason FROM myria.withdrawn w
    WHERE w.tenant_id = $1 AND w.event_seq = c.event_seq ORDER BY w.by_event_seq DESC LIMIT 1
) newest ON true
WHERE coalesce(newest.reason, 'restored') IN ('restored', 'superseded')
ORDER BY c.event_seq DESC
LIMIT 100;

-- name: newest
-- The newest notes of a scope that hold for longer than a session.
SELECT n.note_id, n.kind, n.importance, n.anchor, n.created_at, n.changed_at, n.session_ends_at, n.reason, e.payload
FROM myria.scopes s
CROSS JOIN LATERAL (
    SELECT k.* FROM myria.standing_notes k
    WHERE k.tenant_id = $1 AND k.scope_id = s.scope_id AND k.live AND NOT k.session
    ORDER BY k.event_seq DESC LIMIT $3
) n
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = n.event_seq
WHERE s.tenant_id = $1 AND s.scope_key = $2;

-- name: contradictions
-- The live notes that links say contradict some notes, and who may see them. What ends with another session than $3 is
-- left out.
SELECT l.note_id, other.first_seq, s.participants
FROM (
    SELECT o.from_id AS note_id, o.to_id AS other_id FROM myria.note_links o
    WHERE o.tenant_id = $1 AND o.from_id = ANY ($2::text[]) AND o.relation = 'contradicts'
    UNION
    SELECT i.to_id, i.from_id FROM myria.note_links i
    WHERE i.tenant_id = $1 AND i.to_id = ANY ($2::text[]) AND i.relation = 'contradicts'
) l
JOIN myria.notes other ON other.tenant_id = $1 AND other.note_id = l.other_id AND other.live
    AND (NOT other.session OR other.context_id = $3)
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = other.scope_id
ORDER BY other.first_seq;
