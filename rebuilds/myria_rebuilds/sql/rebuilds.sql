-- name: facts
-- A build of one tenant with everything that the status of its resource tells.
SELECT b.tenant_id, b.build_id, b.status, b.trigger, b.is_full, b.is_forced, b.hold, b.reason, b.request_id,
       b.parent_snapshot_id,
       b.snapshot_id, b.cutoff, b.created_at, b.started_at, b.finished_at, b.lease_until, b.error, b.counts, b.job_uid,
       b.suspended, coalesce(b.lease_until > clock_timestamp(), false) AS alive,
       extract(epoch FROM clock_timestamp() - greatest(b.pods_wanted_at, b.lease_until))::double precision AS podless_s,
       p.tasks, p.done, p.degraded,
       coalesce(p.degraded_reason, CASE WHEN b.counts ? 'llm_units_degraded_standing' THEN (
           SELECT t.degraded_reason
           FROM myria.builds earlier
           JOIN myria.build_tasks t ON t.tenant_id = $1 AND t.build_id = earlier.build_id AND t.degraded_reason IS NOT NULL
           WHERE earlier.tenant_id = $1 AND earlier.tasks_degraded > 0 AND earlier.created_at < b.created_at
           ORDER BY earlier.created_at DESC, t.scope_id LIMIT 1) END) AS degraded_reason,
       s.first_event_seq, s.completed_at IS NOT NULL AND s.status <> 'failed' AS completed,
       s.activated_at IS NOT NULL AS published,
       coalesce((SELECT r.created_at FROM myria.rebuild_requests r
                 WHERE r.tenant_id = $1 AND r.request_id = b.request_id), b.created_at) AS requested_at,
       b.parent_snapshot_id IS NOT DISTINCT FROM
           (SELECT a.snapshot_id FROM myria.active_snapshots a WHERE a.tenant_id = $1) AS parent_is_active
FROM myria.builds b
LEFT JOIN myria.snapshots s ON s.tenant_id = $1 AND s.snapshot_id = b.snapshot_id
CROSS JOIN LATERAL (
    SELECT count(*) AS tasks, count(*) FILTER (WHERE t.status = 'done') AS done,
           count(*) FILTER (WHERE t.degraded_reason IS NOT NULL) AS degraded, min(t.degraded_reason) AS degraded_reason
    FROM myria.build_tasks t WHERE t.tenant_id = $1 AND t.build_id = b.build_id) p
WHERE b.tenant_id = $1 AND b.build_id = $2;

-- name: give_up
-- The mark of what ended without moving the pointer: a request that is closed, though it has a build, or never was
-- open.
INSERT INTO myria.rebuild_requests (tenant_id, request_id, cause_key, trigger, is_full, hold, reason, actor,
                                    resource_name, resource_uid, resource_manager, closed_at)
SELECT $1, $2, 'resource:' || $6, 'manual', false, false, $3, $4, $5, $6, $7, clock_timestamp()
WHERE NOT EXISTS (SELECT FROM myria.pointer_moves m WHERE m.tenant_id = $1 AND m.resource_uid = $6)
ON CONFLICT (tenant_id, resource_uid) WHERE resource_uid IS NOT NULL
DO UPDATE SET closed_at = coalesce(rebuild_requests.closed_at, EXCLUDED.closed_at);

-- name: installation
SELECT installation_id::text FROM myria.installation;

-- name: situation
-- Everything about a resource ($2, its uid) of a tenant that is not its build: whether there is such a tenant, its
-- request, its build's id, who is before it, what the pointer did for it. Before it are the builds that have a Job, but
-- for the first $4 of those that have worked for longer than $3 seconds, and the others in the order in which they were
-- asked for: those of tenants whose last build failed after all others.
SELECT clock_timestamp() AS now, t.tenant_id IS NOT NULL AS tenant_known,
       r.request_id, coalesce(r.suspended, false) AS suspended, r.closed_at IS NOT NULL AS closed,
       b.tenant_id AS build_tenant_id, b.build_id,
       u.build_id AS unfinished_build_id, u.resource_name AS unfinished_resource,
       o.ahead, coalesce(o.names[1:5], '{}') AS ahead_names, coalesce(t.consecutive_failures > 0, false) AS failed_last,
       t.auto_paused_at IS NOT NULL AS paused,
       m.from_snapshot_id AS moved_from, m.to_snapshot_id AS moved_to, m.moved_at,
       a.snapshot_id AS active_snapshot_id,
       (SELECT p.snapshot_id FROM myria.snapshots_before($1, a.snapshot_id) p WHERE p.differs) AS previous_snapshot_id
FROM (SELECT) AS one
LEFT JOIN myria.tenants t ON t.tenant_id = $1
LEFT JOIN myria.rebuild_requests r ON r.resource_uid = $2
LEFT JOIN myria.builds b ON b.resource_uid = $2
LEFT JOIN myria.builds u ON u.tenant_id = $1 AND u.finished_at IS NULL
LEFT JOIN LATERAL (
    SELECT count(*) AS ahead, array_agg(w.resource_name ORDER BY w.created_at, w.build_id) AS names
    FROM (
        SELECT x.resource_name, x.created_at, x.build_id, x.job_uid IS NOT NULL AS works, l.is_long, f.failed_last,
               row_number() OVER (PARTITION BY x.job_uid IS NOT NULL AND l.is_long ORDER BY x.created_at, x.build_id) AS place
        FROM myria.builds x
        CROSS JOIN LATERAL (
            SELECT clock_timestamp() - coalesce(x.pods_wanted_at, x.created_at) > make_interval(secs => $3) AS is_long) l
        CROSS JOIN LATERAL (
            SELECT coalesce((SELECT n.consecutive_failures > 0 FROM myria.tenants n WHERE n.tenant_id = x.tenant_id), false)
                AS failed_last) f
        WHERE x.finished_at IS NULL AND x.resource_uid IS NOT NULL AND NOT x.suspended
    ) w
    WHERE w.build_id <> b.build_id
      AND CASE WHEN w.works THEN NOT (w.is_long AND w.place <= $4)
               ELSE (w.failed_last, w.created_at, w.build_id)
                   < (coalesce(t.consecutive_failures > 0, false), b.created_at, b.build_id) END) o ON true
LEFT JOIN LATERAL (
    SELECT x.from_snapshot_id, x.to_snapshot_id, x.moved_at FROM myria.pointer_moves x
    WHERE x.tenant_id = $1 AND x.resource_uid = $2) m ON true
LEFT JOIN myria.active_snapshots a ON a.tenant_id = $1
LIMIT 1;

-- name: ask
-- A resource that a person made asks once.
INSERT INTO myria.rebuild_requests (tenant_id, request_id, cause_key, trigger, is_full, hold, reason, actor,
                                    resource_name, resource_uid, resource_manager, suspended, is_forced)
VALUES ($1, $2, 'resource:' || $9, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
ON CONFLICT DO NOTHING;

-- name: name_resource
-- The intention to make a resource, before it is made.
UPDATE myria.rebuild_requests SET resource_name = $3
WHERE tenant_id = $1 AND request_id = $2 AND resource_name IS NULL AND build_id IS NULL AND closed_at IS NULL
RETURNING request_id;

-- name: adopt
-- The resource that was made out of a request finds it; nobody else's label can.
UPDATE myria.rebuild_requests SET resource_uid = $4, made_resource = true, resource_manager = 'myria-operator'
WHERE tenant_id = $1 AND request_id = $2 AND resource_name = $3 AND build_id IS NULL AND closed_at IS NULL
  AND resource_uid IS NULL
RETURNING request_id;

-- name: next_to_make
-- The request that becomes a resource next: none while the tenant has a build, or a resource that waits for one.
SELECT r.tenant_id AS tenant, r.request_id, r.cause_key, r.trigger, r.is_full, r.is_forced, r.hold, r.reason,
       r.resource_name AS name
FROM myria.rebuild_requests r
WHERE r.tenant_id = $1 AND r.build_id IS NULL AND r.closed_at IS NULL AND r.resource_uid IS NULL
  AND (r.trigger = 'manual' AND r.cause_key NOT LIKE 'schedule:%' OR NOT $2)
  AND NOT EXISTS (SELECT FROM myria.builds b WHERE b.tenant_id = $1 AND b.finished_at IS NULL)
  AND NOT EXISTS (SELECT FROM myria.rebuild_requests w
                  WHERE w.tenant_id = $1 AND w.build_id IS NULL AND w.closed_at IS NULL AND NOT w.suspended
                    AND w.resource_uid IS NOT NULL)
ORDER BY r.resource_name IS NULL, r.trigger <> 'manual', r.created_at, r.request_id
LIMIT 1;

-- name: suspend_request
UPDATE myria.rebuild_requests SET suspended = $2 WHERE resource_uid = $1 AND suspended <> $2;

-- name: suspend_build
UPDATE myria.builds
SET suspended = $3, pods_wanted_at = CASE WHEN $3 THEN pods_wanted_at ELSE clock_timestamp() END
WHERE tenant_id = $1 AND build_id = $2 AND finished_at IS NULL AND suspended <> $3;

-- name: close_request
-- Whatever of the resource ended or went away: its request is never taken up.
UPDATE myria.rebuild_requests SET closed_at = clock_timestamp()
WHERE resource_uid = $1 AND build_id IS NULL AND closed_at IS NULL;

-- name: note_job
-- The first Job that is noted is the build's; whoever comes later learns whose it was.
UPDATE myria.builds
SET job_uid = coalesce(job_uid, $3), pods_wanted_at = coalesce(pods_wanted_at, clock_timestamp())
WHERE tenant_id = $1 AND build_id = $2
RETURNING job_uid;

-- name: dirty_scopes
-- How many scopes a build of the tenant would work on, counted up to a limit.
SELECT count(*) FROM (
    SELECT e.scope_id FROM myria.events e
    WHERE e.tenant_id = $1 AND NOT e.internal
      AND e.event_seq > coalesce((SELECT s.cutoff FROM myria.active_snapshots a
                                  JOIN myria.snapshots s ON s.tenant_id = $1 AND s.snapshot_id = a.snapshot_id
                                  WHERE a.tenant_id = $1), 0)
    GROUP BY e.scope_id LIMIT $2) few;

-- name: all_scopes
SELECT count(*) FROM (SELECT FROM myria.scopes s WHERE s.tenant_id = $1 LIMIT $2) few;

-- name: changes
-- Builds and requests of resources that changed in a transaction that was not yet seen to be over at the horizon given;
-- and the next horizon. Exact: whatever commits later has an id of at least that.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS horizon, c.kind, c.id, c.resource_name,
       c.revision::text AS revision, c.ended
FROM (SELECT) AS one
LEFT JOIN (
    SELECT 'build' AS kind, b.build_id AS id, b.resource_name, b.revision, b.finished_at IS NOT NULL AS ended
    FROM myria.builds b WHERE b.revision >= $1::text::xid8
    UNION ALL
    SELECT 'request', r.request_id, r.resource_name, r.revision, false
    FROM myria.rebuild_requests r WHERE r.revision >= $1::text::xid8
) c ON true;

-- name: waiting
-- Resources that wait for their turn: requests, and builds that have no Job yet.
SELECT r.resource_name, r.resource_uid FROM myria.rebuild_requests r
WHERE r.build_id IS NULL AND r.closed_at IS NULL AND r.resource_uid IS NOT NULL
UNION ALL
SELECT b.resource_name, b.resource_uid FROM myria.builds b
WHERE b.finished_at IS NULL AND b.resource_uid IS NOT NULL AND b.job_uid IS NULL;

-- name: unfinished
-- Every unfinished build, for the sweep; idle_s: seconds since anybody was seen to work on it.
SELECT b.tenant_id AS tenant, b.build_id, b.resource_name AS name, b.resource_uid AS uid,
       coalesce(b.lease_until > clock_timestamp(), false) AS alive,
       extract(epoch FROM clock_timestamp() - greatest(b.created_at, b.lease_until))::double precision AS idle_s
FROM myria.builds b WHERE b.finished_at IS NULL;

-- name: show_ending
-- Until the transaction ends, others see that an operator ends builds.
SELECT pg_advisory_xact_lock_shared($1::bigint);

-- name: is_ending
SELECT EXISTS (SELECT FROM pg_locks l
               WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
                 AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
                 AND (l.classid::bigint << 32 | l.objid::bigint) = $1::bigint);

-- name: of_resource_name
-- What is unfinished of resources of a name, whichever uid they had.
SELECT b.tenant_id, b.build_id, b.resource_uid FROM myria.builds b
WHERE b.resource_name = $1 AND b.resource_uid IS NOT NULL AND b.finished_at IS NULL
UNION ALL
SELECT r.tenant_id, NULL, r.resource_uid FROM myria.rebuild_requests r
WHERE r.resource_name = $1 AND r.resource_uid IS NOT NULL AND r.build_id IS NULL AND r.closed_at IS NULL;

-- name: made_resources
-- Which of these resources the operator made out of requests.
SELECT r.resource_uid FROM myria.rebuild_requests r WHERE r.resource_uid = ANY ($1::text[]) AND r.made_resource;

-- name: has_waiting
-- Whether a resource of the tenant waits for its build.
SELECT EXISTS (SELECT FROM myria.rebuild_requests r
               WHERE r.tenant_id = $1 AND r.build_id IS NULL AND r.closed_at IS NULL AND NOT r.suspended
                 AND r.resource_uid IS NOT NULL);
