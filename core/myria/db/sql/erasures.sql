-- name: claim
-- Work on an erasure for $4 seconds, unless it is done or somebody else does.
UPDATE myria.erasures SET worker = $3, leased_until = clock_timestamp() + make_interval(secs => $4)
WHERE tenant_id = $1 AND erasure_id = $2 AND state <> 'done'
  AND (worker IS NULL OR worker = $3 OR leased_until < clock_timestamp());

-- name: renew
UPDATE myria.erasures SET leased_until = clock_timestamp() + make_interval(secs => $4)
WHERE tenant_id = $1 AND erasure_id = $2 AND worker = $3;

-- name: release
-- Let go of an erasure; $4 is the code and message of what went wrong, NULL where nothing did.
UPDATE myria.erasures SET worker = NULL, leased_until = NULL, failure = $4::jsonb
WHERE tenant_id = $1 AND erasure_id = $2 AND worker = $3;

-- name: waiting
-- What there is to go on with, oldest first: none of a tenant on which somebody works, and what nobody proved that an
-- officer asked for it with $1 alone.
SELECT x.tenant_id, x.erasure_id
FROM myria.erasures x
WHERE x.state <> 'done' AND (x.proved OR $1) AND NOT EXISTS (
    SELECT FROM myria.erasures o
    WHERE o.tenant_id = x.tenant_id AND o.state <> 'done' AND o.leased_until >= clock_timestamp())
ORDER BY x.created_at, x.erasure_id LIMIT 1000;

-- name: forget_shown_keys
-- Keys of receipts that were shown long enough.
UPDATE myria.erasures SET receipt_key = NULL
WHERE receipt_key IS NOT NULL AND key_shown_at < clock_timestamp() - interval '5 minutes';

-- name: show_key
SELECT myria.show_receipt_key($1, $2, $3);

-- name: try_listing
-- One selection of a tenant is looked up at a time: it may read the whole log.
SELECT pg_try_advisory_xact_lock($1::bigint);

-- name: is_begun
SELECT EXISTS (SELECT FROM myria.erasures WHERE tenant_id = $1 AND erasure_id = $2);

-- name: count_open
SELECT count(*) FROM myria.erasures WHERE tenant_id = $1 AND state <> 'done';

-- name: status
-- What may be told of one erasure ($2), or of the newest $3: no word of what was erased, and no key.
SELECT x.erasure_id, x.state, x.selected::text AS selected, x.actor, x.reason, x.counts::text AS counts, x.receipt, x.mac,
       x.created_at, x.finished_at, x.failure::text AS failure,
       coalesce(x.leased_until >= clock_timestamp(), false) AS is_worked_on,
       e.events, e.withdrawn, e.erased
FROM myria.erasures x
CROSS JOIN LATERAL (
    SELECT count(*) AS events, count(*) FILTER (WHERE l.erased_at IS NOT NULL) AS erased,
           count(*) FILTER (WHERE EXISTS (SELECT FROM myria.withdrawn w
                                          WHERE w.tenant_id = $1 AND w.event_seq = l.event_seq AND w.reason = 'forgotten'))
               AS withdrawn
    FROM myria.erased l WHERE l.tenant_id = $1 AND l.erasure_id = x.erasure_id) e
WHERE x.tenant_id = $1 AND ($2::text IS NULL OR x.erasure_id = $2)
ORDER BY x.created_at DESC, x.erasure_id DESC LIMIT $3;

-- name: event_ids
SELECT e.event_id
FROM myria.erased x JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = x.event_seq
WHERE x.tenant_id = $1 AND x.erasure_id = $2 ORDER BY x.event_seq;

-- name: epochs
-- The tenants in which something was erased within the last minutes, with their epochs.
SELECT tenant_id, epoch FROM myria.moved_erasure_epochs();
