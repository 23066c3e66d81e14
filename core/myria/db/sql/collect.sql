-- name: tenants
-- Tenants with a snapshot whose retention has ended, or is being ended; as all tenants.
SELECT DISTINCT x.tenant_id FROM (
    SELECT s.tenant_id, s.status, s.archived_at, s.number, s.activated_at,
           row_number() OVER (PARTITION BY s.tenant_id, s.status ORDER BY s.archived_at DESC, s.created_at DESC) AS rank
    FROM myria.snapshots s
    WHERE s.status IN ('archived', 'failed', 'superseded')
) x
WHERE (x.status = 'archived' AND x.rank > $1 AND x.archived_at < clock_timestamp() - make_interval(secs => $2))
   OR (x.status = 'superseded'
       AND (x.activated_at IS NOT NULL OR x.archived_at < clock_timestamp() - make_interval(secs => $2)))
   OR (x.status <> 'archived' AND (x.rank > $3 OR x.number IS NOT NULL))
UNION
SELECT n.tenant_id FROM myria.tenants n
WHERE EXISTS (
    SELECT FROM myria.llm_calls c
    WHERE c.tenant_id = n.tenant_id AND c.created_at < clock_timestamp() - make_interval(secs => $4))
ORDER BY tenant_id;

-- name: expire
-- Archived snapshots beyond what is kept, that no request or cursor can still be pinned to, that are neither what a
-- rollback without an argument goes to, nor what an unfinished build started from. The publish lock is held, so none
-- becomes active meanwhile; from here on none can.
UPDATE myria.snapshots s
SET status = 'superseded'
FROM (SELECT a.snapshot_id, row_number() OVER (ORDER BY a.archived_at DESC, a.number DESC) AS rank
      FROM myria.snapshots a WHERE a.tenant_id = $1 AND a.status = 'archived') ranked
WHERE s.tenant_id = $1 AND s.snapshot_id = ranked.snapshot_id AND ranked.rank > $2
  AND s.archived_at < clock_timestamp() - make_interval(secs => $3)
  AND s.snapshot_id NOT IN (
      SELECT p.snapshot_id FROM myria.active_snapshots a
      CROSS JOIN LATERAL myria.snapshots_before($1, a.snapshot_id) p
      WHERE a.tenant_id = $1
      UNION ALL
      SELECT b.parent_snapshot_id FROM myria.builds b
      WHERE b.tenant_id = $1 AND b.finished_at IS NULL AND b.parent_snapshot_id IS NOT NULL)
RETURNING s.snapshot_id;

-- name: scopes
-- The next scopes that have a tree.
SELECT r.scope_id FROM myria.scope_roots r
WHERE r.tenant_id = $1 AND r.scope_id > $2
GROUP BY r.scope_id ORDER BY r.scope_id LIMIT $3;

-- name: roots
-- The rows of scopes, and whether some kept snapshot reads them: it is the newest within its lineage.
WITH kept AS MATERIALIZED (
    SELECT s.lineage FROM myria.snapshots s
    WHERE s.tenant_id = $1 AND s.status IN ('staging', 'held', 'active', 'archived')
)
SELECT r.scope_id, r.number, r.root_rendering_id, EXISTS (
    SELECT FROM kept k
    WHERE r.number::bigint <@ k.lineage
      AND NOT EXISTS (
          SELECT FROM myria.scope_roots x
          WHERE x.tenant_id = $1 AND x.scope_id = r.scope_id AND x.number > r.number AND x.number::bigint <@ k.lineage)
) AS live
FROM myria.scope_roots r
WHERE r.tenant_id = $1 AND r.scope_id = ANY ($2::bigint[])
ORDER BY r.scope_id, r.number;

-- name: being_built
-- Whether an unfinished build works on a scope; the build lock is owned, so none begins to.
SELECT EXISTS (
    SELECT FROM myria.builds b
    JOIN myria.build_tasks t ON t.tenant_id = $1 AND t.build_id = b.build_id AND t.scope_id = $2
    WHERE b.tenant_id = $1 AND b.finished_at IS NULL);

-- name: outlines
-- Of a tree only what tells where else it could occur.
SELECT r.rendering_id, r.node_id, r.level, r.children, r.first_at, r.last_at
FROM unnest($2::bytea[]) AS wanted
JOIN myria.renderings r ON r.tenant_id = $1 AND r.rendering_id = wanted;

-- name: delete_renderings
DELETE FROM myria.renderings r
USING unnest($2::bytea[]) AS gone
WHERE r.tenant_id = $1 AND r.rendering_id = gone;

-- name: delete_blocks
DELETE FROM myria.search_blocks b
USING unnest($2::bytea[]) AS gone
WHERE b.tenant_id = $1 AND b.rendering_id = gone;

-- name: delete_nodes
-- Identities that no rendering shows any more.
DELETE FROM myria.nodes n
USING unnest($2::bytea[]) AS gone
WHERE n.tenant_id = $1 AND n.node_id = gone
  AND NOT EXISTS (SELECT FROM myria.renderings r WHERE r.tenant_id = $1 AND r.node_id = n.node_id);

-- name: delete_root
DELETE FROM myria.scope_roots WHERE tenant_id = $1 AND scope_id = $2 AND number = $3
RETURNING blocks;

-- name: unlisted_blocks
-- Of a scope's deleted row the blocks that no other row of it lists: their renderings may well live on, as parts of
-- what a greater block covers.
SELECT unnest($3::bytea[])
EXCEPT
SELECT unnest(r.blocks) FROM myria.scope_roots r WHERE r.tenant_id = $1 AND r.scope_id = $2;

-- name: expired
-- Snapshots to be removed now that nothing of theirs is left: expired ones, held ones that ended $3 seconds ago, and
-- those without a result beyond what is kept.
SELECT x.snapshot_id, x.build_id, x.number, x.activated_at IS NOT NULL AS was_active FROM (
    SELECT s.snapshot_id, s.build_id, s.number, s.activated_at, s.archived_at,
           row_number() OVER (PARTITION BY s.activated_at IS NULL ORDER BY s.created_at DESC) AS rank
    FROM myria.snapshots s
    WHERE s.tenant_id = $1 AND s.status IN ('failed', 'superseded')
) x
WHERE x.activated_at IS NOT NULL OR x.rank > $2 OR x.archived_at < clock_timestamp() - make_interval(secs => $3)
ORDER BY x.snapshot_id;

-- name: tasks_of
-- What a build left: the roots of its finished tasks, and the scopes of those that never finished.
SELECT t.scope_id, t.root_rendering_id, t.attempt FROM myria.build_tasks t
WHERE t.tenant_id = $1 AND t.build_id = $2 AND t.scope_id > $3
ORDER BY t.scope_id LIMIT $4;

-- name: written_during
-- Renderings of a scope made while a build ran. No index serves this: it is for builds that died half-way.
SELECT r.rendering_id, r.node_id, r.level, r.children, r.first_at, r.last_at
FROM myria.renderings r
JOIN myria.builds b ON b.tenant_id = $1 AND b.build_id = $3
WHERE r.tenant_id = $1 AND r.scope_id = $2 AND r.rendering_id > $4
  AND r.created_at >= b.started_at AND r.created_at <= b.finished_at + interval '1 minute'
ORDER BY r.rendering_id LIMIT $5;

-- name: delete_snapshot
DELETE FROM myria.snapshots WHERE tenant_id = $1 AND snapshot_id = $2;

-- name: delete_requests
DELETE FROM myria.rebuild_requests WHERE tenant_id = $1 AND build_id = $2;

-- name: delete_build
DELETE FROM myria.builds WHERE tenant_id = $1 AND build_id = $2 AND finished_at IS NOT NULL;

-- name: builds_without_snapshot
-- Ended builds that never had a snapshot, beyond the newest.
SELECT x.build_id FROM (
    SELECT b.build_id, row_number() OVER (ORDER BY b.created_at DESC) AS rank
    FROM myria.builds b
    WHERE b.tenant_id = $1 AND b.finished_at IS NOT NULL
      AND NOT EXISTS (SELECT FROM myria.snapshots s WHERE s.tenant_id = $1 AND s.snapshot_id = b.snapshot_id)
) x
WHERE x.rank > $2;
