-- name: tenants
-- Every tenant with what can be told without counting: one index look-up for each of its facts. A tenant that only
-- appended so far has no row in tenants, so the log is asked as well: one look-up per tenant, none of the events between.
WITH RECURSIVE logs AS (
    (SELECT e.tenant_id FROM myria.events e ORDER BY e.tenant_id LIMIT 1)
    UNION ALL
    SELECT (SELECT e.tenant_id FROM myria.events e WHERE e.tenant_id > l.tenant_id ORDER BY e.tenant_id LIMIT 1)
    FROM logs l WHERE l.tenant_id IS NOT NULL
), known AS (
    SELECT l.tenant_id FROM logs l WHERE l.tenant_id IS NOT NULL
    UNION
    SELECT t.tenant_id FROM myria.tenants t
)
SELECT k.tenant_id AS tenant, clock_timestamp() AS now, coalesce(s.cutoff, 0) AS cutoff,
       coalesce((SELECT e.event_seq FROM myria.events e WHERE e.tenant_id = k.tenant_id
                 ORDER BY e.event_seq DESC LIMIT 1), 0) AS last_seq,
       CASE WHEN s.activated_at IS NOT NULL
            THEN greatest(0, extract(epoch FROM clock_timestamp() - s.activated_at)::double precision) END AS snapshot_age_s,
       CASE WHEN t.auto_paused_at IS NOT NULL THEN coalesce(t.auto_paused_reason, 'unknown')
            WHEN h.completed_at IS NOT NULL THEN 'held_snapshot' END AS paused_reason,
       greatest(0, extract(epoch FROM clock_timestamp() - coalesce(t.auto_paused_at, h.completed_at))::double precision)
           AS paused_s,
       coalesce(t.consecutive_failures, 0) AS failures,
       (SELECT coalesce(sum(z.payload_bytes), 0)::bigint FROM myria.stored_sizes z
        WHERE z.tenant_id = k.tenant_id) AS stored_bytes,
       coalesce((SELECT extract(epoch FROM b.finished_at)::double precision FROM myria.builds b
                 WHERE b.tenant_id = k.tenant_id AND b.status IN ('succeeded', 'held', 'nothing_to_do')
                 ORDER BY b.created_at DESC LIMIT 1), 0) AS succeeded_at,
       (SELECT count(*) FROM (SELECT FROM myria.notes n WHERE n.tenant_id = k.tenant_id AND n.review = 'held'
                              LIMIT 1000) few) AS held_notes,
       coalesce((SELECT greatest(0, extract(epoch FROM clock_timestamp() - e.ingested_at))::double precision
                 FROM (SELECT n.review_seq FROM myria.notes n WHERE n.tenant_id = k.tenant_id AND n.review = 'held'
                       ORDER BY n.review_seq LIMIT 1) oldest
                 JOIN myria.events e ON e.tenant_id = k.tenant_id AND e.event_seq = oldest.review_seq), 0) AS held_s
FROM known k
LEFT JOIN myria.tenants t ON t.tenant_id = k.tenant_id
LEFT JOIN myria.active_snapshots a ON a.tenant_id = k.tenant_id
LEFT JOIN myria.snapshots s ON s.tenant_id = k.tenant_id AND s.snapshot_id = a.snapshot_id
LEFT JOIN LATERAL (
    SELECT x.completed_at FROM myria.snapshots x
    WHERE x.tenant_id = k.tenant_id AND x.status = 'held' AND x.parent_snapshot_id IS NOT DISTINCT FROM a.snapshot_id
    ORDER BY x.created_at DESC LIMIT 1) h ON true
ORDER BY k.tenant_id;

-- name: tails
-- For each tenant the events past a number, at most $3 of them: how many count, when the first of those was appended,
-- and where the look ended, and when that one was appended.
SELECT w.tenant_id, tail.looked_at, tail.counted, tail.last_seq,
       (SELECT e.ingested_at FROM myria.events e
        WHERE e.tenant_id = w.tenant_id AND e.event_seq = tail.first_counted) AS first_at,
       (SELECT e.ingested_at FROM myria.events e
        WHERE e.tenant_id = w.tenant_id AND e.event_seq = tail.last_seq) AS last_at
FROM unnest($1::text[], $2::bigint[]) AS w (tenant_id, after)
CROSS JOIN LATERAL (
    SELECT count(*) AS looked_at, count(*) FILTER (WHERE NOT x.internal) AS counted,
           min(x.event_seq) FILTER (WHERE NOT x.internal) AS first_counted, max(x.event_seq) AS last_seq
    FROM (SELECT e.event_seq, e.internal FROM myria.events e
          WHERE e.tenant_id = w.tenant_id AND e.event_seq > w.after
          ORDER BY e.event_seq LIMIT $3) x) tail;

-- name: gauges
-- What the database as a whole says: each column is a gauge of the catalogue without its prefix, but for the two counts of
-- builds. Those are builds that have not ended, and requests that nobody has taken up. One that a person suspended, or that
-- waits for a pause to end, waits on purpose and is left out. Erasures count that are not done.
SELECT pg_total_relation_size('myria.events') AS log_bytes, pg_database_size(current_database()) AS database_bytes,
       queued, running, oldest_queued_build_seconds, oldest_running_build_seconds,
       erasures_open, oldest_open_erasure_seconds, last_receipt_timestamp_seconds
FROM (
    SELECT count(*) FILTER (WHERE NOT q.running) AS queued, count(*) FILTER (WHERE q.running) AS running,
           greatest(0, max(q.age_s) FILTER (WHERE NOT q.running)) AS oldest_queued_build_seconds,
           greatest(0, max(q.age_s) FILTER (WHERE q.running)) AS oldest_running_build_seconds
    FROM (
        SELECT b.status = 'running' AS running,
               extract(epoch FROM clock_timestamp() - CASE WHEN b.status = 'running' THEN b.started_at
                                                           ELSE b.created_at END)::double precision AS age_s
        FROM myria.builds b WHERE b.finished_at IS NULL AND NOT b.suspended
        UNION ALL
        SELECT false, extract(epoch FROM clock_timestamp() - r.created_at)::double precision
        FROM myria.rebuild_requests r
        LEFT JOIN myria.tenants t ON t.tenant_id = r.tenant_id
        WHERE r.build_id IS NULL AND r.closed_at IS NULL AND NOT r.suspended
          AND (r.trigger = 'manual' OR t.auto_paused_at IS NULL)) q) builds,
    (SELECT count(*) FILTER (WHERE x.state <> 'done') AS erasures_open,
            greatest(0, extract(epoch FROM clock_timestamp() - min(x.created_at) FILTER (WHERE x.state <> 'done'))
                ::double precision) AS oldest_open_erasure_seconds,
            coalesce(extract(epoch FROM max(x.finished_at)), 0)::double precision AS last_receipt_timestamp_seconds
     FROM myria.erasures x) erasures;

-- name: snapshots
SELECT s.status, count(*) AS snapshots FROM myria.snapshots s GROUP BY s.status;

-- name: totals
SELECT family, labels, amount FROM myria.tallied();
