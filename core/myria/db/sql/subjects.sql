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
SELECT n.*, n.is_subject AS is_unit, n.subjects AS units
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
SELECT n.*, n.is_subject AS is_unit, n.subjects AS units
FROM way w
CROSS JOIN LATERAL (
    SELECT * FROM myria.subject_nodes x WHERE x.tenant_id = $1 AND x.rendering_id = w.rendering_id OFFSET 0) n;

-- name: write_nodes
WITH added AS (
    INSERT INTO myria.subject_nodes (tenant_id, scope_id, rendering_id, node_id, level, topic_id, anchor_seq, anchor_event_id,
        label, summary, metadata, children, is_subject, events, leaves, subjects, key_at, key_digest, key_event_id, first_at,
        last_at)
    SELECT $1, $2, n.rendering_id, n.node_id, n.level, n.topic_id, n.anchor_seq, n.anchor_event_id, n.label, n.summary,
           n.metadata, n.children, n.is_unit, n.events, n.leaves, n.units, n.key_at, n.key_digest, n.key_event_id,
           n.first_at, n.last_at
    FROM unnest($3::myria.new_node[]) AS n ORDER BY n.rendering_id
    ON CONFLICT DO NOTHING RETURNING 1
)
SELECT count(*) AS nodes FROM added;

-- name: drop_records
-- What attempts before $4 wrote of a scope under the number $5 of an unfinished build. The task is locked: while it is this
-- attempt's, no other one begins.
WITH task AS (
    SELECT t.scope_id FROM myria.build_tasks t
    WHERE t.tenant_id = $1 AND t.build_id = $2 AND t.scope_id = $3 AND t.attempt = $4 AND t.status = 'pending' FOR SHARE
)
DELETE FROM myria.subject_holders h USING task t WHERE h.tenant_id = $1 AND h.scope_id = t.scope_id AND h.number = $5;

-- name: write_holders
-- The task is locked as above.
WITH task AS (
    SELECT t.scope_id FROM myria.build_tasks t
    WHERE t.tenant_id = $1 AND t.build_id = $2 AND t.scope_id = $3 AND t.attempt = $4 AND t.status = 'pending' FOR SHARE
)
INSERT INTO myria.subject_holders (tenant_id, scope_id, number, key, holders, subject)
SELECT $1, t.scope_id, $5, x.key, x.holders, x.subject
FROM task t CROSS JOIN unnest($6::bytea[], $7::bytea[], $8::bytea[]) AS x (key, holders, subject)
ON CONFLICT (tenant_id, scope_id, key, number) DO UPDATE SET holders = excluded.holders, subject = excluded.subject;

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
