-- name: count_tail
-- What a build would take: events past the cutoff that count, an index-only scan of exactly those; without those of them
-- that are withdrawn now.
SELECT count(*) - (
    SELECT count(*)
    FROM (SELECT DISTINCT ON (w.event_seq) w.event_seq, w.reason FROM myria.withdrawn w
          WHERE w.tenant_id = $1 AND w.event_seq > $2
          ORDER BY w.event_seq, w.by_event_seq DESC) newest
    JOIN myria.events x ON x.tenant_id = $1 AND x.event_seq = newest.event_seq AND NOT x.internal
    WHERE newest.reason <> 'restored')
FROM myria.events e WHERE e.tenant_id = $1 AND e.event_seq > $2 AND NOT e.internal;

-- name: reaches
-- Whether at least $3 events past a number count, withdrawals among them.
SELECT (SELECT count(*) FROM (
            SELECT FROM myria.events e WHERE e.tenant_id = $1 AND e.event_seq > $2 AND NOT e.internal LIMIT $3) few)
     + (SELECT count(*) FROM (
            SELECT FROM myria.withdrawn w WHERE w.tenant_id = $1 AND w.by_event_seq > $2 LIMIT $3) few) >= $3;

-- name: outgrows
-- Whether at least as many events that count lie past a number as up to it; both are counted up to $3.
WITH tail AS (
    SELECT count(*) AS events FROM (
        SELECT FROM myria.events e WHERE e.tenant_id = $1 AND e.event_seq > $2 AND NOT e.internal LIMIT $3) few
)
SELECT (SELECT events FROM tail) >= (
    SELECT count(*) FROM (
        SELECT FROM myria.events e WHERE e.tenant_id = $1 AND e.event_seq <= $2 AND NOT e.internal
        LIMIT (SELECT events + 1 FROM tail)) few);

-- name: last_tail_event
-- The last event past a number that counts, or withdrawal, and for how many seconds of the database's clock it has been
-- the last.
SELECT newest.event_seq, newest.ingested_at,
       extract(epoch FROM clock_timestamp() - newest.ingested_at)::double precision AS quiet_s
FROM (
    (SELECT e.event_seq, e.ingested_at FROM myria.events e
     WHERE e.tenant_id = $1 AND e.event_seq > $2 AND NOT e.internal
     ORDER BY e.event_seq DESC LIMIT 1)
    UNION ALL
    (SELECT e.event_seq, e.ingested_at
     FROM (SELECT w.by_event_seq FROM myria.withdrawn w
           WHERE w.tenant_id = $1 AND w.by_event_seq > $2
           ORDER BY w.by_event_seq DESC LIMIT 1) last
     JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = last.by_event_seq)
) newest
ORDER BY newest.event_seq DESC
LIMIT 1;

-- name: count_waiting
SELECT count(*) FROM myria.rebuild_requests WHERE tenant_id = $1 AND build_id IS NULL AND closed_at IS NULL;

-- name: tenants_with_news
-- Tenants whose log reaches past a number: one index look-up per tenant, and none of the events between. Only a hint:
-- an append that commits late may lie below it.
WITH RECURSIVE logs AS (
    (SELECT e.tenant_id FROM myria.events e ORDER BY e.tenant_id LIMIT 1)
    UNION ALL
    SELECT (SELECT e.tenant_id FROM myria.events e WHERE e.tenant_id > l.tenant_id ORDER BY e.tenant_id LIMIT 1)
    FROM logs l WHERE l.tenant_id IS NOT NULL
)
SELECT l.tenant_id, newest.event_seq
FROM logs l
CROSS JOIN LATERAL (
    SELECT e.event_seq FROM myria.events e WHERE e.tenant_id = l.tenant_id ORDER BY e.event_seq DESC LIMIT 1) newest
WHERE l.tenant_id IS NOT NULL AND newest.event_seq > $1;

-- name: tenants_waiting
-- Tenants with a request nobody has taken up, or a build that has not ended.
SELECT tenant_id FROM myria.rebuild_requests WHERE build_id IS NULL AND closed_at IS NULL
UNION
SELECT tenant_id FROM myria.builds WHERE finished_at IS NULL;

-- name: tenants_paused
SELECT tenant_id FROM myria.tenants WHERE auto_paused_at IS NOT NULL OR suspended_at IS NOT NULL OR concurrent_builds = 0
UNION
SELECT tenant_id FROM myria.snapshots WHERE status = 'held';

-- name: schedule_since
-- The time, and since when a schedule has its expression.
SELECT clock_timestamp() AS now, myria.schedule_since($1, $2) AS since;

-- name: ask_all
-- One request per tenant that has a tree since before a schedule was due, and none where builds pause: a rollback must
-- not be undone by the clock. $1 the cause, $2 when it was due, $3 the reason.
INSERT INTO myria.rebuild_requests (tenant_id, request_id, cause_key, trigger, is_full, hold, reason, actor)
SELECT a.tenant_id, 'req_' || replace(gen_random_uuid()::text, '-', ''), $1, 'manual', true, false, $3, 'schedule'
FROM myria.active_snapshots a
JOIN myria.tenants t ON t.tenant_id = a.tenant_id
WHERE t.created_at <= $2 AND t.auto_paused_at IS NULL AND t.deleting_at IS NULL
  AND t.suspended_at IS NULL AND t.concurrent_builds IS DISTINCT FROM 0
  AND NOT EXISTS (SELECT FROM myria.snapshots h
                  WHERE h.tenant_id = a.tenant_id AND h.status = 'held' AND h.parent_snapshot_id = a.snapshot_id)
ON CONFLICT (tenant_id, cause_key) DO NOTHING
RETURNING tenant_id;

-- name: state
-- Everything the triggers of one tenant depend on, but its tail.
SELECT coalesce(s.cutoff, 0) AS cutoff, a.moved_at,
       coalesce(t.attempted_cutoff, 0) AS attempted_cutoff,
       t.auto_paused_at IS NOT NULL OR t.deleting_at IS NOT NULL OR t.suspended_at IS NOT NULL
           OR coalesce(t.concurrent_builds = 0, false) AS paused,
       coalesce(t.retry_at > clock_timestamp(), false) AS backing_off,
       extract(epoch FROM t.retry_at - clock_timestamp())::double precision AS retry_in_s,
       newest.build_id AS newest_build_id, newest.status AS newest_status, newest.cutoff AS newest_cutoff,
       newest.created_at AS newest_created_at,
       newest.finished_at AS newest_finished_at, newest.transient AS newest_transient,
       extract(epoch FROM clock_timestamp() - newest.finished_at)::double precision AS newest_ended_s,
       CASE WHEN newest.trigger = 'manual' THEN 0
            ELSE coalesce(extract(epoch FROM newest.finished_at - newest.started_at)::double precision, 0)
       END AS newest_took_s
FROM (SELECT) AS one
LEFT JOIN myria.tenants t ON t.tenant_id = $1
LEFT JOIN myria.active_snapshots a ON a.tenant_id = $1
LEFT JOIN myria.snapshots s ON s.tenant_id = $1 AND s.snapshot_id = a.snapshot_id
LEFT JOIN LATERAL (
    SELECT b.build_id, b.status, b.trigger, b.cutoff, b.created_at, b.started_at, b.finished_at,
           coalesce((b.error#>>'{details,transient}')::boolean, false) AS transient
    FROM myria.builds b WHERE b.tenant_id = $1 ORDER BY b.finished_at DESC NULLS FIRST LIMIT 1) newest ON true;

-- name: fold_totals
-- Add up what transactions have counted since the last call.
SELECT myria.fold_tallies();

-- name: note_wait
-- Work $2 waits, for the reason $3: since now, or since it did.
UPDATE myria.tenants t
SET waits = t.waits || jsonb_build_object($2::text, jsonb_build_object(
    'reason', $3::text, 'since', coalesce(t.waits->$2->>'since', to_char(
        clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))))
WHERE t.tenant_id = $1;

-- name: end_wait
UPDATE myria.tenants SET waits = waits - $2::text WHERE tenant_id = $1 AND waits ? $2;

-- name: forget_waits
UPDATE myria.tenants SET waits = waits - $1::text[] WHERE waits ?| $1::text[];
