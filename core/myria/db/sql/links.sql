-- name: fold
-- The events were stored by the statement before. Rows go in the order of their keys, so that two commits never wait for
-- each other crosswise; of two links of one pair and type the later event counts.
WITH said AS (
    SELECT e.tenant_id, said.link->>'from' AS from_id, said.link->>'to' AS to_id, said.link->>'relation' AS relation,
           e.event_seq, said.link->'replaces' = 'true' AS replaces
    FROM unnest($2::bigint[]) AS folded (event_seq)
    CROSS JOIN LATERAL (
        SELECT * FROM myria.events x WHERE x.tenant_id = $1 AND x.event_seq = folded.event_seq OFFSET 0
    ) e
    CROSS JOIN LATERAL (SELECT e.payload->'link' AS link) AS said
    WHERE e.internal AND jsonb_typeof(said.link->'from') = 'string' AND jsonb_typeof(said.link->'to') = 'string'
      AND jsonb_typeof(said.link->'relation') = 'string'
)
INSERT INTO myria.note_relations AS r (tenant_id, from_id, to_id, relation, event_seq, replaces_seq)
SELECT s.tenant_id, s.from_id, s.to_id, s.relation, max(s.event_seq), max(s.event_seq) FILTER (WHERE s.replaces)
FROM said s
GROUP BY s.tenant_id, s.from_id, s.to_id, s.relation
ORDER BY s.from_id, s.to_id, s.relation
ON CONFLICT (tenant_id, from_id, to_id, relation) DO UPDATE
SET event_seq = greatest(r.event_seq, EXCLUDED.event_seq), replaces_seq = greatest(r.replaces_seq, EXCLUDED.replaces_seq);

-- name: of_notes
-- The links of some notes in both directions, newest first, at most $3, before the event $4 where one is given.
SELECT l.from_id, l.to_id, l.relation, l.event_seq FROM (
    SELECT o.from_id, o.to_id, o.relation, o.event_seq FROM myria.standing_links o
    WHERE o.tenant_id = $1 AND o.from_id = ANY ($2::text[])
    UNION
    SELECT i.from_id, i.to_id, i.relation, i.event_seq FROM myria.standing_links i
    WHERE i.tenant_id = $1 AND i.to_id = ANY ($2::text[])
) l
WHERE $4::bigint IS NULL OR l.event_seq < $4
ORDER BY l.event_seq DESC
LIMIT $3;

-- name: there
-- The links of some pairs of notes.
SELECT l.from_id, l.to_id, l.relation
FROM unnest($2::text[], $3::text[]) AS pair (from_id, to_id)
JOIN myria.standing_links l ON l.tenant_id = $1 AND l.from_id = pair.from_id AND l.to_id = pair.to_id;

-- name: between
-- The links that lead from one of some notes to another of them.
SELECT l.from_id, l.to_id FROM myria.standing_links l
WHERE l.tenant_id = $1 AND l.from_id = ANY ($2::text[]) AND l.to_id = ANY ($2::text[]);

-- name: among
-- The notes of some to which a link leads from a note.
SELECT l.to_id FROM myria.standing_links l WHERE l.tenant_id = $1 AND l.from_id = $2 AND l.to_id = ANY ($3::text[]);

-- name: scopes_of_ends
-- The scopes of the live notes that links of some relations connect with some notes.
SELECT s.scope_id, s.participants
FROM (
    SELECT n.scope_id FROM myria.standing_links o
    JOIN myria.notes n ON n.tenant_id = $1 AND n.note_id = o.to_id AND n.live
    WHERE o.tenant_id = $1 AND o.from_id = ANY ($2::text[]) AND o.relation = ANY ($3::text[])
    UNION
    SELECT n.scope_id FROM myria.standing_links i
    JOIN myria.notes n ON n.tenant_id = $1 AND n.note_id = i.from_id AND n.live
    WHERE i.tenant_id = $1 AND i.to_id = ANY ($2::text[]) AND i.relation = ANY ($3::text[])
) ends
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = ends.scope_id;

-- name: ends
-- The links of some relations of some notes with live ones of some scopes, each with what that one says now: at most $5,
-- those of the relations $6 with others first, then the newest. One between two of these notes is there for each. Its
-- weight is what the event says that made it: 1 where it says none.
SELECT l.end_id = l.to_id AS leads, l.from_id, l.to_id, l.relation,
       CASE WHEN jsonb_typeof(said.payload->'link'->'weight') = 'number'
            THEN (said.payload->'link'->>'weight')::float8 ELSE 1 END AS weight, n.note_id, n.first_seq, n.kind, n.topic, n.importance, n.anchor, n.created_at,
       n.changed_at, n.context_id, n.session, e.payload, n.session_ends_at, n.reason, n.used_at
FROM (
    SELECT x.* FROM (
        SELECT o.from_id, o.to_id, o.relation, o.event_seq, o.to_id AS end_id FROM myria.standing_links o
        WHERE o.tenant_id = $1 AND o.from_id = ANY ($2::text[]) AND o.relation = ANY ($3::text[])
        UNION ALL
        SELECT i.from_id, i.to_id, i.relation, i.event_seq, i.from_id FROM myria.standing_links i
        WHERE i.tenant_id = $1 AND i.to_id = ANY ($2::text[]) AND i.relation = ANY ($3::text[])
    ) x
    JOIN myria.notes k ON k.tenant_id = $1 AND k.note_id = x.end_id AND k.live AND k.scope_id = ANY ($4::bigint[])
    ORDER BY x.relation = ANY ($6::text[]) AND x.end_id <> ALL ($2) DESC, x.event_seq DESC LIMIT $5
) l
JOIN myria.standing_notes n ON n.tenant_id = $1 AND n.note_id = l.end_id
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = n.event_seq
JOIN myria.events said ON said.tenant_id = $1 AND said.event_seq = l.event_seq
ORDER BY l.event_seq DESC;

-- name: notes
-- What some notes say now, and who may see them; withdrawn ones are left out.
SELECT n.note_id, n.first_seq, e.event_id, n.kind, n.topic, n.importance, n.anchor, n.created_at, n.changed_at,
       n.context_id, n.session, e.payload, n.session_ends_at, n.reason, n.used_at, s.participants
FROM myria.standing_notes n
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = n.event_seq
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = n.scope_id
WHERE n.tenant_id = $1 AND n.note_id = ANY ($2::text[]) AND n.live;

-- name: contradictions
-- The live notes that links say contradict some notes, and who may see them. What ends with another session than $3 is
-- left out, and so is what has ended at $4.
SELECT l.note_id, other.first_seq, s.participants
FROM (
    SELECT o.from_id AS note_id, o.to_id AS other_id FROM myria.standing_links o
    WHERE o.tenant_id = $1 AND o.from_id = ANY ($2::text[]) AND o.relation = 'contradicts'
    UNION
    SELECT i.to_id, i.from_id FROM myria.standing_links i
    WHERE i.tenant_id = $1 AND i.to_id = ANY ($2::text[]) AND i.relation = 'contradicts'
) l
JOIN myria.notes other ON other.tenant_id = $1 AND other.note_id = l.other_id AND other.live
    AND (NOT other.session OR other.context_id = $3)
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = other.scope_id
WHERE other.note_id NOT IN (SELECT d.note_id FROM myria.ended_notes($1, $4) d)
ORDER BY other.first_seq;
