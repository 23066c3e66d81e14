-- name: root
-- The newest row of a scope within a snapshot's lineage; none where a build without subjects has changed the tree since.
SELECT r.root_rendering_id, r.since, r.number
FROM myria.snapshots s
JOIN myria.subject_roots r ON r.tenant_id = $1 AND r.scope_id = $2 AND r.number::bigint <@ s.lineage
WHERE s.tenant_id = $1 AND s.snapshot_id = $3
  AND NOT EXISTS (SELECT FROM myria.scope_roots t
                  WHERE t.tenant_id = $1 AND t.scope_id = $2 AND t.number > r.number AND t.number::bigint <@ s.lineage)
ORDER BY r.number DESC
LIMIT 1;

-- name: holders
-- The newest record of each key within a snapshot's lineage, not older than the number $5.
SELECT wanted.key, h.holders, h.subject
FROM (SELECT s.lineage FROM myria.snapshots s WHERE s.tenant_id = $1 AND s.snapshot_id = $3) s
CROSS JOIN unnest($4::bytea[]) AS wanted (key)
CROSS JOIN LATERAL (
    SELECT x.holders, x.subject FROM myria.subject_holders x
    WHERE x.tenant_id = $1 AND x.scope_id = $2 AND x.key = wanted.key AND x.number >= $5 AND x.number::bigint <@ s.lineage
    ORDER BY x.number DESC LIMIT 1) h;

-- name: nodes
-- Those of some renderings that are of subjects.
SELECT n.rendering_id, n.node_id, n.level, n.topic_id, n.anchor_seq, n.anchor_event_id, n.label, n.summary, n.metadata,
       n.children, n.is_subject, n.events, n.leaves, n.subjects, n.key_at, n.key_digest, n.key_event_id, n.first_at, n.last_at
FROM unnest($2::bytea[]) AS wanted
JOIN myria.subject_nodes n ON n.tenant_id = $1 AND n.rendering_id = wanted;

-- name: along
-- A root of subjects, the nodes of subjects that some paths lead through, and those directly beneath them: one statement
-- for what would be one for each level, and there are some thirty.
WITH RECURSIVE way AS (
    SELECT n.rendering_id, n.children, $3::text[] AS paths
    FROM myria.subject_nodes n WHERE n.tenant_id = $1 AND n.rendering_id = $2
    UNION ALL
    SELECT n.rendering_id, n.children, n.paths
    FROM way w
    CROSS JOIN LATERAL unnest(w.children) AS child
    CROSS JOIN LATERAL (
        SELECT x.rendering_id, x.children,
               ARRAY(SELECT path FROM unnest(w.paths) AS path WHERE starts_with(path, x.metadata ->> 'prefix')) AS paths
        FROM myria.subject_nodes x WHERE x.tenant_id = $1 AND x.rendering_id = child OFFSET 0) n
    WHERE w.paths <> '{}'
)
SELECT n.rendering_id, n.node_id, n.level, n.topic_id, n.anchor_seq, n.anchor_event_id, n.label, n.summary, n.metadata,
       n.children, n.is_subject, n.events, n.leaves, n.subjects, n.key_at, n.key_digest, n.key_event_id, n.first_at, n.last_at
FROM way w
CROSS JOIN LATERAL (
    SELECT * FROM myria.subject_nodes x WHERE x.tenant_id = $1 AND x.rendering_id = w.rendering_id OFFSET 0) n;

-- name: write_nodes
-- Times are microseconds since 1970.
INSERT INTO myria.subject_nodes (tenant_id, scope_id, rendering_id, node_id, level, topic_id, anchor_seq, anchor_event_id,
    label, summary, metadata, children, is_subject, events, leaves, subjects, key_at, key_digest, key_event_id, first_at,
    last_at)
SELECT $1, $2, x.rendering_id, x.node_id, x.level, x.topic_id, x.anchor_seq, x.anchor_event_id, x.label, x.summary,
       x.metadata, x.children::bytea[], x.is_subject, x.events, x.leaves, x.subjects,
       to_timestamp(x.key_us / 1000000) + x.key_us % 1000000 * interval '1 microsecond', x.key_digest, x.key_event_id,
       to_timestamp(x.first_us / 1000000) + x.first_us % 1000000 * interval '1 microsecond',
       to_timestamp(x.last_us / 1000000) + x.last_us % 1000000 * interval '1 microsecond'
FROM ROWS FROM (
         unnest($3::text::bytea[], $4::text::bytea[], $5::text::smallint[], $6::text::text[], $7::text::bigint[],
                $8::text::text[], $9::text::text[], $10::text::text[], $12::text::text[], $13::text::boolean[],
                $14::text::integer[], $15::text::integer[], $16::text::integer[], $17::text::bigint[],
                $18::text::bytea[], $19::text::text[], $20::text::bigint[], $21::text::bigint[]),
         jsonb_array_elements($11::text::jsonb))
     AS x (rendering_id, node_id, level, topic_id, anchor_seq, anchor_event_id, label, summary, children, is_subject,
           events, leaves, subjects, key_us, key_digest, key_event_id, first_us, last_us, metadata)
ON CONFLICT DO NOTHING;

-- name: drop_records
-- What an earlier attempt wrote of a scope under the number of an unfinished build.
DELETE FROM myria.subject_holders WHERE tenant_id = $1 AND scope_id = $2 AND number = $3;

-- name: write_holders
INSERT INTO myria.subject_holders (tenant_id, scope_id, number, key, holders, subject)
SELECT $1, $2, $3, x.key, x.holders, x.subject
FROM unnest($4::text::bytea[], $5::text::bytea[], $6::text::bytea[]) AS x (key, holders, subject)
ON CONFLICT (tenant_id, scope_id, key, number) DO UPDATE SET holders = excluded.holders, subject = excluded.subject;

-- name: delete_of
-- The rows a build wrote under its number, scope by scope from its task list: roots and records.
WITH tasks AS (
    SELECT t.scope_id FROM myria.build_tasks t
    WHERE t.tenant_id = $1 AND t.build_id = $2 AND t.scope_id > $4 ORDER BY t.scope_id LIMIT $5
), roots AS (
    DELETE FROM myria.subject_roots r USING tasks t
    WHERE r.tenant_id = $1 AND r.scope_id = t.scope_id AND r.number = $3
)
DELETE FROM myria.subject_holders h USING tasks t
WHERE h.tenant_id = $1 AND h.scope_id = t.scope_id AND h.number = $3;

-- name: any
-- Whether there are subjects of one of some scopes, or of any scope where none is named.
SELECT EXISTS (SELECT FROM myria.subject_roots r WHERE r.tenant_id = $1 AND ($2::bigint[] IS NULL OR r.scope_id = ANY ($2)));

-- name: collect_roots
-- The rows of a scope that no kept snapshot reads.
DELETE FROM myria.subject_roots r
WHERE r.tenant_id = $1 AND r.scope_id = $2 AND NOT EXISTS (
    SELECT FROM myria.snapshots s
    WHERE s.tenant_id = $1 AND s.status IN ('staging', 'held', 'active', 'archived') AND r.number::bigint <@ s.lineage
      AND NOT EXISTS (
          SELECT FROM myria.subject_roots x
          WHERE x.tenant_id = $1 AND x.scope_id = $2 AND x.number > r.number AND x.number::bigint <@ s.lineage));

-- name: collect_holders
-- Likewise the records.
DELETE FROM myria.subject_holders h
WHERE h.tenant_id = $1 AND h.scope_id = $2 AND NOT EXISTS (
    SELECT FROM myria.snapshots s
    WHERE s.tenant_id = $1 AND s.status IN ('staging', 'held', 'active', 'archived') AND h.number::bigint <@ s.lineage
      AND NOT EXISTS (
          SELECT FROM myria.subject_holders x
          WHERE x.tenant_id = $1 AND x.scope_id = $2 AND x.key = h.key AND x.number > h.number
            AND x.number::bigint <@ s.lineage));

-- name: collect_nodes
-- What no root of the scope reaches.
WITH RECURSIVE reached AS (
    SELECT r.root_rendering_id AS rendering_id FROM myria.subject_roots r
    WHERE r.tenant_id = $1 AND r.scope_id = $2 AND r.root_rendering_id IS NOT NULL
    UNION
    SELECT child
    FROM reached u
    CROSS JOIN LATERAL (
        SELECT n.children FROM myria.subject_nodes n
        WHERE n.tenant_id = $1 AND n.rendering_id = u.rendering_id OFFSET 0) n
    CROSS JOIN LATERAL unnest(n.children) AS child
)
DELETE FROM myria.subject_nodes n
WHERE n.tenant_id = $1 AND n.scope_id = $2
  AND NOT EXISTS (SELECT FROM reached u WHERE u.rendering_id = n.rendering_id);

-- name: forget
-- Everything of a scope: what was erased may be quoted anywhere in it, and the next build plans it anew.
WITH roots AS (
    DELETE FROM myria.subject_roots WHERE tenant_id = $1 AND scope_id = $2
), records AS (
    DELETE FROM myria.subject_holders WHERE tenant_id = $1 AND scope_id = $2
)
DELETE FROM myria.subject_nodes WHERE tenant_id = $1 AND scope_id = $2;
