-- name: active
SELECT s.snapshot_id, s.number, s.cutoff, s.tail_xid::text AS tail_xid, s.lineage::text AS lineage, s.parent_snapshot_id,
       s.planner_settings, s.build_id, s.counts, a.moved_at
FROM myria.active_snapshots a
JOIN myria.snapshots s ON s.tenant_id = $1 AND s.snapshot_id = a.snapshot_id
WHERE a.tenant_id = $1;

-- name: get
SELECT s.snapshot_id, s.number, s.parent_snapshot_id, s.build_id, s.status, s.cutoff, s.first_event_seq,
       s.tail_xid::text AS tail_xid, s.lineage::text AS lineage, s.planner_version, s.planner_settings,
       s.builder_version, s.summarizer_version, s.merge_policy_version, s.counts, s.violations, s.created_at,
       s.completed_at, s.activated_at, s.archived_at
FROM myria.snapshots s WHERE s.tenant_id = $1 AND s.snapshot_id = $2;

-- name: freshness
-- Which snapshot one is that is kept, and how many events that count came since, at most $3: a snapshot after a rollback lacks many.
SELECT s.number, s.build_id, s.created_at, (SELECT count(*) FROM (
           SELECT FROM myria.events e WHERE e.tenant_id = $1 AND e.event_seq > s.cutoff AND NOT e.internal LIMIT $3) newer
       ) AS newer_events
FROM myria.snapshots s WHERE s.tenant_id = $1 AND s.snapshot_id = $2;

-- name: page
-- Snapshots, newest first; the key of the last row of the page before, or nulls. One whose retention ended is on its
-- way out and not listed.
SELECT s.snapshot_id, s.number, s.parent_snapshot_id, s.build_id, s.status, s.cutoff, s.first_event_seq,
       s.tail_xid::text AS tail_xid, s.lineage::text AS lineage, s.planner_version, s.planner_settings,
       s.builder_version, s.summarizer_version, s.merge_policy_version, s.counts, s.violations, s.created_at,
       s.completed_at, s.activated_at, s.archived_at
FROM myria.snapshots s
WHERE s.tenant_id = $1
  AND ($2::timestamptz IS NULL OR (s.created_at, s.snapshot_id) < ($2, $3))
  AND NOT (s.status = 'superseded' AND s.activated_at IS NOT NULL)
ORDER BY s.created_at DESC, s.snapshot_id DESC
LIMIT $4;

-- name: stage
-- The next snapshot: numbers are dense, one more than the greatest in use (the publish lock is held), and its
-- lineage is its parent's and itself.
INSERT INTO myria.snapshots (tenant_id, snapshot_id, number, parent_snapshot_id, build_id, status, cutoff,
                             first_event_seq, tail_xid, lineage, planner_version, planner_settings, builder_version,
                             summarizer_version, merge_policy_version)
SELECT $1, $2, n.number, $3, $4, 'staging', $5, $6, $7::text::xid8,
       coalesce((SELECT p.lineage FROM myria.snapshots p WHERE p.tenant_id = $1 AND p.snapshot_id = $3), '{}')
           + int8multirange(int8range(n.number, n.number + 1)),
       $8, $9, $10, $11, $12
FROM (SELECT coalesce(max(x.number), 0) + 1 AS number FROM myria.snapshots x WHERE x.tenant_id = $1) n
RETURNING number;

-- name: complete
-- Everything is compiled and checked; what becomes of it is decided next.
UPDATE myria.snapshots
SET status = $3, counts = $4::jsonb, completed_at = clock_timestamp(),
    activated_at = CASE WHEN $3 = 'active' THEN clock_timestamp() END
WHERE tenant_id = $1 AND snapshot_id = $2 AND status = 'staging'
RETURNING snapshot_id;

-- name: activate
UPDATE myria.snapshots SET status = 'active', activated_at = clock_timestamp(), archived_at = NULL
WHERE tenant_id = $1 AND snapshot_id = $2;

-- name: archive
UPDATE myria.snapshots SET status = 'archived', archived_at = clock_timestamp()
WHERE tenant_id = $1 AND snapshot_id = $2;

-- name: give_up
-- A snapshot that will never be served: kept with its reasons, its rows and its number to be freed.
UPDATE myria.snapshots SET status = $3, violations = $4::jsonb, counts = counts || $5::jsonb, completed_at = clock_timestamp()
WHERE tenant_id = $1 AND snapshot_id = $2 AND status IN ('staging', 'held')
RETURNING number;

-- name: discard
-- The same of one that is being built, by a role that may only change the status.
UPDATE myria.snapshots SET status = 'failed' WHERE tenant_id = $1 AND snapshot_id = $2 AND status = 'staging';

-- name: withdraw
-- A staged snapshot that would show what its parent shows: no root was written under its number.
DELETE FROM myria.snapshots WHERE tenant_id = $1 AND snapshot_id = $2 AND status = 'staging';

-- name: previous
-- Where a rollback goes that names no snapshot: the last one before that differs.
SELECT p.snapshot_id FROM myria.snapshots_before($1, $2) p WHERE p.differs;

-- name: end_held
-- A held snapshot is given up; retention removes it after its time, as one that was archived then.
UPDATE myria.snapshots SET status = 'superseded', archived_at = clock_timestamp()
WHERE tenant_id = $1 AND snapshot_id = $2 AND status = 'held';

-- name: supersede_held
-- Another snapshot than $2 was published: what is held was built on one that is no longer active, and never will be.
WITH ended AS (
    UPDATE myria.snapshots SET status = 'superseded', archived_at = clock_timestamp()
    WHERE tenant_id = $1 AND status = 'held' AND snapshot_id <> $2
    RETURNING build_id
)
UPDATE myria.builds b SET status = 'superseded'
FROM ended e WHERE b.tenant_id = $1 AND b.build_id = e.build_id AND b.status = 'held';

-- name: unfreed
-- Snapshots that will never be served and still own a number.
SELECT snapshot_id, number, build_id FROM myria.snapshots
WHERE tenant_id = $1 AND number IS NOT NULL AND status IN ('failed', 'superseded') AND activated_at IS NULL;

-- name: delete_rows_of
-- What a build wrote under its number $3, scope by scope from its task list after $4: roots, and records of subjects. The
-- last scope of the page comes back.
WITH tasks AS (
    SELECT t.scope_id FROM myria.build_tasks t
    WHERE t.tenant_id = $1 AND t.build_id = $2 AND t.scope_id > $4 ORDER BY t.scope_id LIMIT $5
), roots AS (
    DELETE FROM myria.scope_roots r USING tasks t
    WHERE r.tenant_id = $1 AND r.scope_id = t.scope_id AND r.number = $3
), subjects AS (
    DELETE FROM myria.subject_roots r USING tasks t
    WHERE r.tenant_id = $1 AND r.scope_id = t.scope_id AND r.number = $3
), records AS (
    DELETE FROM myria.subject_holders h USING tasks t
    WHERE h.tenant_id = $1 AND h.scope_id = t.scope_id AND h.number = $3
)
SELECT max(t.scope_id) FROM tasks t;

-- name: free_number
UPDATE myria.snapshots SET number = NULL
WHERE tenant_id = $1 AND snapshot_id = $2 AND status IN ('failed', 'superseded') AND activated_at IS NULL;

-- name: point
-- The compare-and-set on the pointer: no row comes back unless it still stands where the caller thinks.
INSERT INTO myria.active_snapshots (tenant_id, snapshot_id) VALUES ($1, $2)
ON CONFLICT (tenant_id) DO UPDATE SET snapshot_id = EXCLUDED.snapshot_id, moved_at = clock_timestamp()
WHERE active_snapshots.snapshot_id = $3
RETURNING snapshot_id;

-- name: note_move
-- $7..$9: the Kubernetes resource that asked; else that of the build whose snapshot is published.
INSERT INTO myria.pointer_moves (tenant_id, kind, from_snapshot_id, to_snapshot_id, actor, reason,
                                 resource_name, resource_uid, manager)
SELECT $1, $2, $3, $4, $5, $6, coalesce($7, b.resource_name), coalesce($8, b.resource_uid),
       coalesce($9, b.resource_manager)
FROM (SELECT) one
LEFT JOIN myria.snapshots s ON s.tenant_id = $1 AND s.snapshot_id = $4 AND $2 = 'publish' AND $7::text IS NULL
LEFT JOIN myria.builds b ON b.tenant_id = $1 AND b.build_id = s.build_id;

-- name: move_of_resource
SELECT from_snapshot_id, to_snapshot_id FROM myria.pointer_moves WHERE tenant_id = $1 AND resource_uid = $2;

-- name: is_given_up
-- Whether a resource ended without moving the pointer.
SELECT EXISTS (SELECT FROM myria.rebuild_requests r
               WHERE r.tenant_id = $1 AND r.resource_uid = $2 AND r.closed_at IS NOT NULL);

-- name: moves
SELECT kind, from_snapshot_id, to_snapshot_id, actor, reason, moved_at, resource_name, resource_uid, manager
FROM myria.pointer_moves WHERE tenant_id = $1 ORDER BY move_id DESC LIMIT $2;

-- name: moves_to
-- The newest $3 moves to each of some snapshots, newest first.
SELECT m.* FROM unnest($2::text[]) AS wanted (snapshot_id)
CROSS JOIN LATERAL (
    SELECT l.move_id, l.kind, l.to_snapshot_id, l.actor, l.reason, l.moved_at
    FROM myria.pointer_moves l WHERE l.tenant_id = $1 AND l.to_snapshot_id = wanted.snapshot_id
    ORDER BY l.move_id DESC LIMIT $3) m
ORDER BY m.move_id DESC;

-- name: pause
UPDATE myria.tenants SET auto_paused_at = clock_timestamp(), auto_paused_reason = $2 WHERE tenant_id = $1;

-- name: resume
UPDATE myria.tenants SET auto_paused_at = NULL, auto_paused_reason = NULL
WHERE tenant_id = $1 AND auto_paused_at IS NOT NULL
RETURNING tenant_id;

-- name: publishable_held
-- A held snapshot that waits for a decision: its parent is still the active one.
SELECT h.snapshot_id, h.completed_at
FROM myria.snapshots h
WHERE h.tenant_id = $1 AND h.status = 'held'
  AND h.parent_snapshot_id IS NOT DISTINCT FROM
      (SELECT a.snapshot_id FROM myria.active_snapshots a WHERE a.tenant_id = $1)
ORDER BY h.created_at DESC
LIMIT 1;

-- name: pause_state
SELECT t.auto_paused_at, t.auto_paused_reason, t.attempted_cutoff, t.consecutive_failures, t.retry_at, t.waits,
       coalesce(t.retry_at > clock_timestamp(), false) AS backing_off, clock_timestamp() AS now
FROM myria.tenants t WHERE t.tenant_id = $1;
