-- name: ensure_tenant
INSERT INTO myria.tenants (tenant_id) VALUES ($1) ON CONFLICT DO NOTHING;

-- name: share_build_lock
-- Held by every transaction that adds to a build or finishes one of its tasks.
SELECT pg_advisory_xact_lock_shared($1::bigint);

-- name: own_build_lock
-- Held by whoever ends a build without its result, and by garbage collection: no task commits meanwhile.
SELECT pg_advisory_xact_lock($1::bigint);

-- name: request
-- A cause asks once, however often it is reported.
INSERT INTO myria.rebuild_requests (tenant_id, request_id, cause_key, trigger, is_full, hold, reason, actor, is_forced)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (tenant_id, cause_key) DO NOTHING
RETURNING request_id, build_id;

-- name: request_of_cause
SELECT request_id, build_id FROM myria.rebuild_requests WHERE tenant_id = $1 AND cause_key = $2;

-- name: oldest_waiting
-- The request to be taken up next: a manual one before others, and while automatic builds are paused, no other, and
-- none by the clock.
-- $3: on Kubernetes only those that have a resource.
SELECT request_id, trigger, is_full, hold, reason
FROM myria.rebuild_requests
WHERE tenant_id = $1 AND build_id IS NULL AND closed_at IS NULL AND NOT suspended
  AND NOT EXISTS (SELECT FROM myria.tenants t WHERE t.tenant_id = $1
                  AND (t.deleting_at IS NOT NULL OR t.suspended_at IS NOT NULL OR t.concurrent_builds = 0))
  AND (trigger = 'manual' AND cause_key NOT LIKE 'schedule:%' OR NOT $2) AND (resource_uid IS NOT NULL OR NOT $3)
ORDER BY trigger <> 'manual', created_at, request_id
LIMIT 1
FOR UPDATE SKIP LOCKED;

-- name: enqueue
-- At most one unfinished build per tenant: nothing comes back when there is one. It belongs to its request's resource.
INSERT INTO myria.builds (tenant_id, build_id, trigger, is_full, hold, reason, request_id, is_forced,
                          resource_name, resource_uid, resource_manager)
SELECT $1, $2, $3, $4, $5, $6, $7, coalesce(r.is_forced, false), r.resource_name, r.resource_uid, r.resource_manager
FROM (SELECT) one
LEFT JOIN myria.rebuild_requests r ON r.tenant_id = $1 AND r.request_id = $7
ON CONFLICT (tenant_id) WHERE finished_at IS NULL DO NOTHING
RETURNING build_id;

-- name: take_up
-- The request becomes a build, and so does every other waiting one that the same build satisfies: its cutoff is
-- captured later than all of them. One that is a resource, or is about to be, gets a build of its own.
UPDATE myria.rebuild_requests
SET build_id = $2
WHERE tenant_id = $1 AND build_id IS NULL
  AND (request_id = $3 OR resource_name IS NULL AND closed_at IS NULL AND (NOT is_full OR $4) AND hold = $5
                            AND (NOT is_forced OR (SELECT b.is_forced FROM myria.builds b
                                                   WHERE b.tenant_id = $1 AND b.build_id = $2)));

-- name: waiting
-- The requests that no build has taken up, in the order of `oldest_waiting`, and what each waits for: leave for the tenant
-- to build, the end of a resource's suspension, the end of the build before it, the end of the pause $2, or a builder.
SELECT r.request_id, r.trigger, r.is_full, r.reason, r.actor, r.created_at,
       CASE WHEN t.concurrent_builds = 0 THEN 'permission'
            WHEN r.suspended THEN 'suspend'
            WHEN EXISTS (SELECT FROM myria.builds b WHERE b.tenant_id = $1 AND b.finished_at IS NULL) THEN 'build'
            WHEN $2 AND (r.trigger <> 'manual' OR r.cause_key LIKE 'schedule:%') THEN 'pause'
            ELSE 'builder' END AS waits_for
FROM myria.rebuild_requests r
LEFT JOIN myria.tenants t ON t.tenant_id = r.tenant_id
WHERE r.tenant_id = $1 AND r.build_id IS NULL AND r.closed_at IS NULL
ORDER BY r.trigger <> 'manual', r.created_at, r.request_id
LIMIT $3;

-- name: give_up_request
-- A request that waits ends as a build that was given up before it began, so that it stands in the history. Nothing comes
-- back where a build has taken it up, or its resource has ended.
WITH given_up AS (
    UPDATE myria.rebuild_requests r SET build_id = $3
    WHERE r.tenant_id = $1 AND r.request_id = $2 AND r.build_id IS NULL AND r.closed_at IS NULL
    RETURNING r.*
)
INSERT INTO myria.builds (tenant_id, build_id, status, trigger, is_full, hold, reason, request_id, created_at, finished_at,
                          error, resource_name, resource_uid, resource_manager, is_forced)
SELECT g.tenant_id, g.build_id, 'aborted', g.trigger, g.is_full, g.hold, g.reason, g.request_id, g.created_at,
       clock_timestamp(), $4::jsonb, g.resource_name, g.resource_uid, g.resource_manager, g.is_forced
FROM given_up g
RETURNING build_id;

-- name: get
SELECT * FROM myria.builds WHERE tenant_id = $1 AND build_id = $2;

-- name: get_for_update
SELECT * FROM myria.builds WHERE tenant_id = $1 AND build_id = $2
FOR UPDATE;

-- name: newest
-- The build that has not ended, else the one that ended last. A request that is given up while a build runs ends before it.
SELECT * FROM myria.builds WHERE tenant_id = $1
ORDER BY finished_at DESC NULLS FIRST LIMIT 1;

-- name: page
-- Builds, newest first, with who asked and what became of the snapshot; the key of the last row of the page before, or nulls.
SELECT b.*, r.actor AS asked_by, s.number AS snapshot_number, s.status AS snapshot_status,
       s.created_at AS snapshot_created_at, s.activated_at AS snapshot_activated_at
FROM myria.builds b
LEFT JOIN myria.rebuild_requests r ON r.tenant_id = $1 AND r.request_id = b.request_id
LEFT JOIN myria.snapshots s ON s.tenant_id = $1 AND s.snapshot_id = b.snapshot_id
WHERE b.tenant_id = $1 AND ($2::timestamptz IS NULL OR (b.created_at, b.build_id) < ($2, $3))
ORDER BY b.created_at DESC, b.build_id DESC
LIMIT $4;

-- name: unfinished
SELECT *, coalesce(lease_until > clock_timestamp(), false) AS alive FROM myria.builds WHERE tenant_id = $1 AND finished_at IS NULL;

-- name: renew_lease
-- Whoever works on a build says so every few seconds; the pointer tells whether the work is still worth anything.
UPDATE myria.builds b
SET lease_until = clock_timestamp() + make_interval(secs => $3)
WHERE b.tenant_id = $1 AND b.build_id = $2 AND b.finished_at IS NULL
RETURNING b.status, b.parent_snapshot_id,
    (SELECT a.snapshot_id FROM myria.active_snapshots a WHERE a.tenant_id = $1) AS active_snapshot_id;

-- name: high_water_mark
-- Read while the append lock is owned: no append of the tenant is in flight, so nothing below the maximum can still
-- arrive. A later append may have its transaction id already (it made its scope first and now waits for the lock),
-- so the bound is the oldest transaction in flight and not the next one.
SELECT (SELECT max(event_seq) FROM myria.events WHERE tenant_id = $1) AS last_event_seq,
       (SELECT min(event_seq) FROM myria.events WHERE tenant_id = $1) AS first_event_seq,
       pg_snapshot_xmin(pg_current_snapshot())::text AS tail_xid;

-- name: capture
-- The build knows its snapshot and cutoff from here on; it runs once its tasks are listed.
UPDATE myria.builds
SET snapshot_id = $3, parent_snapshot_id = $4, cutoff = $5, is_full = $6, started_at = clock_timestamp()
WHERE tenant_id = $1 AND build_id = $2 AND status = 'queued';

-- name: is_scheduled
-- Whether the clock asked for a build, and nobody else.
SELECT EXISTS (SELECT FROM myria.rebuild_requests r
               WHERE r.tenant_id = $1 AND r.request_id = $2 AND r.cause_key LIKE 'schedule:%');

-- name: any_new
-- Whether an event that counts, or a withdrawal, lies in (parent cutoff, cutoff].
SELECT EXISTS (SELECT FROM myria.events e
               WHERE e.tenant_id = $1 AND e.event_seq > $2 AND e.event_seq <= $3 AND NOT e.internal)
    OR EXISTS (SELECT FROM myria.withdrawn w
               WHERE w.tenant_id = $1 AND w.by_event_seq > $2 AND w.by_event_seq <= $3);

-- name: any_erased_since
-- Whether an event that is being erased was withdrawn past a number.
SELECT EXISTS (SELECT FROM myria.withdrawn w
               JOIN myria.erased x ON x.tenant_id = $1 AND x.event_seq = w.event_seq
               WHERE w.tenant_id = $1 AND w.by_event_seq > $2);

-- name: changed_scopes
SELECT coalesce(sum((t.counts->>'scopes_changed')::bigint), 0)::bigint
FROM myria.build_tasks t WHERE t.tenant_id = $1 AND t.build_id = $2;

-- name: forget_snapshot
-- A build that ended with nothing to do has no snapshot.
UPDATE myria.builds SET snapshot_id = NULL WHERE tenant_id = $1 AND build_id = $2;

-- name: note_attempt
UPDATE myria.tenants SET attempted_cutoff = greatest(attempted_cutoff, $2) WHERE tenant_id = $1;

-- name: list_dirty_scopes
-- One task per scope with an event that counts or a withdrawal in (parent cutoff, cutoff], and how many such events: an
-- index-only scan of exactly those.
INSERT INTO myria.build_tasks (tenant_id, build_id, scope_id, counts)
SELECT $1, $2, dirty.scope_id, jsonb_build_object('events_eligible', sum(dirty.events)::bigint)
FROM (
    SELECT e.scope_id, count(*) AS events
    FROM myria.events e
    WHERE e.tenant_id = $1 AND e.event_seq > $3 AND e.event_seq <= $4 AND NOT e.internal
    GROUP BY e.scope_id
    UNION ALL
    SELECT DISTINCT w.scope_id, 0
    FROM myria.withdrawn w
    WHERE w.tenant_id = $1 AND w.by_event_seq > $3 AND w.by_event_seq <= $4
) dirty
GROUP BY dirty.scope_id
ON CONFLICT DO NOTHING;

-- name: list_scopes_with_trees
-- One task per scope that has a tree in the parent's lineage $3, without an event that is new, unless there is one already.
INSERT INTO myria.build_tasks (tenant_id, build_id, scope_id, counts)
SELECT $1, $2, s.scope_id, jsonb_build_object('events_eligible', 0)
FROM myria.scopes s
CROSS JOIN LATERAL myria.root_within($1, s.scope_id, $3::text::int8multirange) root
WHERE s.tenant_id = $1 AND root.root_rendering_id IS NOT NULL
ON CONFLICT DO NOTHING;

-- name: list_all_scopes
-- A full build has a task for every scope; one without an event that counts ends without a tree.
INSERT INTO myria.build_tasks (tenant_id, build_id, scope_id)
SELECT $1, $2, s.scope_id FROM myria.scopes s WHERE s.tenant_id = $1
ON CONFLICT DO NOTHING;

-- name: run
UPDATE myria.builds SET status = 'running' WHERE tenant_id = $1 AND build_id = $2 AND status = 'queued';

-- name: claim_task
-- The next task nobody works on. The attempt is the fencing token: only who holds the newest one can finish.
UPDATE myria.build_tasks t
SET attempt = t.attempt + 1, worker = $3, lease_until = clock_timestamp() + make_interval(secs => $4)
WHERE t.tenant_id = $1 AND t.build_id = $2 AND t.scope_id = (
    SELECT c.scope_id FROM myria.build_tasks c
    WHERE c.tenant_id = $1 AND c.build_id = $2 AND c.status = 'pending'
      AND (c.lease_until IS NULL OR c.lease_until < clock_timestamp())
    ORDER BY c.scope_id
    LIMIT 1
    FOR UPDATE SKIP LOCKED)
RETURNING t.scope_id, t.attempt, t.error, (t.counts->>'events_eligible')::bigint AS eligible,
    (SELECT s.participants FROM myria.scopes s WHERE s.tenant_id = $1 AND s.scope_id = t.scope_id) AS participants,
    coalesce((SELECT n.llm_planned_at IS NOT NULL FROM myria.tenants n WHERE n.tenant_id = $1), false) AS has_plans;

-- name: divide_scope
-- The parts of a big scope, $5 of its events each. The same for each worker that asks: the cutoff decides.
INSERT INTO myria.build_parts (tenant_id, build_id, scope_id, part, events, begins_at, begins_seq, ends_at, ends_seq)
SELECT $1, $2, $3, ((first.place - 1) / $5)::integer, $5, first.occurred_at, first.event_seq,
       lead(first.occurred_at) OVER later, lead(first.event_seq) OVER later
FROM (
    SELECT e.occurred_at, e.event_seq, row_number() OVER (ORDER BY e.occurred_at, e.event_seq) AS place
    FROM myria.events e
    WHERE e.tenant_id = $1 AND e.scope_id = $3 AND e.event_seq <= $4 AND NOT e.internal
) first
WHERE (first.place - 1) % $5 = 0
WINDOW later AS (ORDER BY first.place)
ON CONFLICT DO NOTHING;

-- name: claim_part
-- The next part of an unfinished task that nobody works on: of the scope $3 for the worker that has its task, or of any for
-- a helper. What a helper failed at, or what was tried $6 times, is for the worker that has the task.
UPDATE myria.build_parts p
SET attempt = p.attempt + 1, worker = $4, lease_until = clock_timestamp() + make_interval(secs => $5)
WHERE p.tenant_id = $1 AND p.build_id = $2 AND (p.scope_id, p.part) = (
    SELECT c.scope_id, c.part FROM myria.build_parts c
    WHERE c.tenant_id = $1 AND c.build_id = $2 AND c.status <> 'done'
      AND (c.scope_id = $3 OR $3::bigint IS NULL AND c.status = 'pending' AND c.attempt < $6)
      AND (c.lease_until IS NULL OR c.lease_until < clock_timestamp())
      AND EXISTS (SELECT FROM myria.build_tasks t
                  WHERE t.tenant_id = $1 AND t.build_id = $2 AND t.scope_id = c.scope_id AND t.status = 'pending')
    ORDER BY c.scope_id, c.part
    LIMIT 1
    FOR UPDATE SKIP LOCKED)
RETURNING p.scope_id, p.part, p.attempt, p.events, p.begins_at, p.begins_seq, p.ends_at, p.ends_seq,
    (SELECT s.participants FROM myria.scopes s WHERE s.tenant_id = $1 AND s.scope_id = p.scope_id) AS participants;

-- name: renew_parts
-- What a worker holds stays its own.
UPDATE myria.build_parts
SET lease_until = clock_timestamp() + make_interval(secs => $4)
WHERE tenant_id = $1 AND build_id = $2 AND worker = $3 AND status <> 'done' AND lease_until IS NOT NULL
RETURNING scope_id;

-- name: finish_part
-- Compare-and-set on the lease's attempt, while the build still runs (the build lock is held).
UPDATE myria.build_parts
SET status = 'done', lease_until = NULL, result = $6::bytea[], counts = $7::jsonb
WHERE tenant_id = $1 AND build_id = $2 AND scope_id = $3 AND part = $4 AND attempt = $5 AND status <> 'done'
RETURNING part;

-- name: leave_part
-- A helper failed at it: who has the scope's task shall see how.
UPDATE myria.build_parts
SET status = 'left', lease_until = NULL
WHERE tenant_id = $1 AND build_id = $2 AND scope_id = $3 AND part = $4 AND attempt = $5 AND status = 'pending';

-- name: part_counts
-- What was counted in each part that is done, null for one that is not.
SELECT CASE WHEN status = 'done' THEN counts END AS counts FROM myria.build_parts
WHERE tenant_id = $1 AND build_id = $2 AND scope_id = $3;

-- name: part_results
SELECT part, result FROM myria.build_parts
WHERE tenant_id = $1 AND build_id = $2 AND scope_id = $3 AND status = 'done' ORDER BY part;

-- name: drop_parts
DELETE FROM myria.build_parts WHERE tenant_id = $1 AND build_id = $2 AND scope_id = $3;

-- name: drop_parts_of_others
-- Those of builds that ended before their tasks did.
DELETE FROM myria.build_parts WHERE tenant_id = $1 AND build_id <> $2;

-- name: drop_parts_leased_by
UPDATE myria.build_parts
SET lease_until = NULL
WHERE tenant_id = $1 AND build_id = $2 AND status <> 'done' AND worker = ANY ($3::text[]);

-- name: renew_task
UPDATE myria.build_tasks
SET lease_until = clock_timestamp() + make_interval(secs => $5), counts = $6::jsonb
WHERE tenant_id = $1 AND build_id = $2 AND scope_id = $3 AND attempt = $4 AND status = 'pending'
RETURNING scope_id;

-- name: release_task
-- A worker that gives up says why, and lets the next one try at once.
UPDATE myria.build_tasks
SET lease_until = NULL, error = $5::jsonb
WHERE tenant_id = $1 AND build_id = $2 AND scope_id = $3 AND attempt = $4 AND status = 'pending';

-- name: fail_task
UPDATE myria.build_tasks
SET status = 'failed', lease_until = NULL, error = $5::jsonb
WHERE tenant_id = $1 AND build_id = $2 AND scope_id = $3 AND attempt = $4 AND status = 'pending';

-- name: drop_leases_of
-- A worker on this host found its predecessors dead: their tasks need not wait for their leases to end.
UPDATE myria.build_tasks
SET lease_until = NULL
WHERE tenant_id = $1 AND build_id = $2 AND status = 'pending' AND worker = ANY ($3::text[]);

-- name: workers
SELECT worker FROM myria.build_tasks
WHERE tenant_id = $1 AND build_id = $2 AND status = 'pending' AND lease_until > clock_timestamp()
UNION
SELECT worker FROM myria.build_parts
WHERE tenant_id = $1 AND build_id = $2 AND status <> 'done' AND lease_until > clock_timestamp();

-- name: is_running
-- The build lock is held.
SELECT EXISTS (SELECT FROM myria.builds b WHERE b.tenant_id = $1 AND b.build_id = $2 AND b.status = 'running');

-- name: finish_task
-- Compare-and-set on the lease's attempt, while the build still runs (the build lock is held): a zombie cannot commit.
-- With it go the scope's new rows under the build's number $8: of its tree where $9 is true, of its subjects where $11 is.
WITH done AS (
    UPDATE myria.build_tasks t
    SET status = 'done', lease_until = NULL, root_rendering_id = $5, counts = $6::jsonb, error = NULL,
        degraded_reason = $7
    WHERE t.tenant_id = $1 AND t.build_id = $2 AND t.scope_id = $3 AND t.attempt = $4 AND t.status = 'pending'
      AND EXISTS (SELECT FROM myria.builds b WHERE b.tenant_id = $1 AND b.build_id = $2 AND b.status = 'running')
    RETURNING t.scope_id
), root AS (
    INSERT INTO myria.scope_roots (tenant_id, scope_id, number, root_rendering_id, blocks, degraded)
    SELECT $1, d.scope_id, $8, $5, $10, $14 FROM done d WHERE $9
    ON CONFLICT (tenant_id, scope_id, number) DO UPDATE
    SET root_rendering_id = excluded.root_rendering_id, blocks = excluded.blocks, degraded = excluded.degraded
), subjects AS (
    INSERT INTO myria.subject_roots (tenant_id, scope_id, number, root_rendering_id, since)
    SELECT $1, d.scope_id, $8, $12, $13 FROM done d WHERE $11
    ON CONFLICT (tenant_id, scope_id, number) DO UPDATE
    SET root_rendering_id = excluded.root_rendering_id, since = excluded.since
)
SELECT d.scope_id FROM done d;

-- name: open_tasks
SELECT count(*) FILTER (WHERE status = 'pending') AS pending, count(*) FILTER (WHERE status = 'failed') AS failed
FROM myria.build_tasks
WHERE tenant_id = $1 AND build_id = $2 AND status <> 'done';

-- name: any_open_task
SELECT EXISTS (SELECT FROM myria.build_tasks WHERE tenant_id = $1 AND build_id = $2 AND status <> 'done');

-- name: failed_tasks
SELECT t.scope_id, t.attempt, t.error, s.participants
FROM myria.build_tasks t
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = t.scope_id
WHERE t.tenant_id = $1 AND t.build_id = $2 AND t.status = 'failed'
ORDER BY t.scope_id
LIMIT 20;

-- name: task_counts
-- The sum of what the tasks counted, name by name.
SELECT c.key AS name, sum(c.value::bigint)::bigint AS value
FROM myria.build_tasks t
CROSS JOIN LATERAL jsonb_each_text(t.counts) AS c
WHERE t.tenant_id = $1 AND t.build_id = $2
GROUP BY c.key
ORDER BY c.key;

-- name: progress
SELECT count(*) AS tasks, count(*) FILTER (WHERE status = 'done') AS tasks_done,
       coalesce(sum((counts->>'events')::bigint), 0)::bigint AS events
FROM myria.build_tasks WHERE tenant_id = $1 AND build_id = $2;

-- name: task_outcomes
SELECT count(*) FILTER (WHERE status = 'done') AS done, count(degraded_reason) FILTER (WHERE status = 'done') AS degraded
FROM myria.build_tasks WHERE tenant_id = $1 AND build_id = $2;

-- name: degraded_reason
-- Why a task of a build, else of the newest build before it that is kept, was done without the model that was asked for.
SELECT t.degraded_reason
FROM myria.builds b
JOIN myria.build_tasks t ON t.tenant_id = $1 AND t.build_id = b.build_id AND t.degraded_reason IS NOT NULL
WHERE b.tenant_id = $1 AND (b.build_id = $2 OR b.tasks_degraded > 0)
  AND b.created_at <= (SELECT x.created_at FROM myria.builds x WHERE x.tenant_id = $1 AND x.build_id = $2)
ORDER BY b.created_at DESC, t.scope_id LIMIT 1;

-- name: finish
UPDATE myria.builds
SET status = $3, finished_at = clock_timestamp(), lease_until = NULL, error = $4::jsonb, counts = counts || $5::jsonb,
    tasks_done = $6, tasks_degraded = $7
WHERE tenant_id = $1 AND build_id = $2 AND finished_at IS NULL
RETURNING build_id;

-- name: note_death
-- Why the last builder of a build died; the end of the build overwrites it.
UPDATE myria.builds SET error = $3::jsonb WHERE tenant_id = $1 AND build_id = $2 AND finished_at IS NULL;

-- name: abort
UPDATE myria.builds
SET status = 'aborted', finished_at = clock_timestamp(), error = $3::jsonb
WHERE tenant_id = $1 AND build_id = $2 AND finished_at IS NULL
RETURNING build_id;

-- name: end_hold
-- A held build's snapshot was published, or given up for the reasons $4.
UPDATE myria.builds SET status = $3, error = coalesce($4::jsonb, error) WHERE tenant_id = $1 AND build_id = $2 AND status = 'held';

-- name: note_success
UPDATE myria.tenants SET consecutive_failures = 0, retry_at = NULL WHERE tenant_id = $1;

-- name: note_failure
-- Wait twice as long after each failure in a row, up to a limit.
UPDATE myria.tenants
SET consecutive_failures = consecutive_failures + 1,
    retry_at = clock_timestamp() + make_interval(secs => least($3, $2 * 2.0 ^ least(consecutive_failures, 30)))
WHERE tenant_id = $1
RETURNING consecutive_failures;

-- name: get_request
SELECT request_id, build_id, trigger, is_full, reason, actor, created_at, closed_at
FROM myria.rebuild_requests WHERE tenant_id = $1 AND request_id = $2;
