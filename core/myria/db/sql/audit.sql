-- name: write_act
-- Once, where the act can be done once (access_log_once).
INSERT INTO myria.access_log (tenant_id, kind, actor, action, target, outcome, face, details, address)
VALUES ($1, 'act', $2, $3, $4, $5, $6, $7::jsonb, $8)
ON CONFLICT DO NOTHING;

-- name: write_refusals
-- What was noted beside requests: no request's commit should wait until this one is on the disk. (A crash of PostgreSQL
-- may lose what came within the second before, as the end of a process may.)
INSERT INTO myria.access_log (tenant_id, kind, actor, action, target, outcome, face, address, times, at)
SELECT $1, 'refusal', r.*
FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::integer[], $9::timestamptz[])
    AS r (actor, action, target, outcome, face, address, times, at)
CROSS JOIN (SELECT set_config('synchronous_commit', 'off', true)) AS unhurried;

-- name: write_calls
-- Nothing is written of a tenant that is deleted, or about to be. As `write_refusals`, it holds up no commit. A call from
-- before the end of an erasure may name an erased context: its name is left out. (Clocks differ by less than a minute.)
INSERT INTO myria.call_log (tenant_id, at, request_id, principal, face, tool, context_id, latency_ms, outcome)
SELECT $1, c.at, c.request_id, c.principal, c.face, c.tool,
       CASE WHEN c.at > (SELECT coalesce(max(coalesce(x.finished_at, 'infinity')), '-infinity') + interval '1 minute'
                         FROM myria.erasures x WHERE x.tenant_id = $1) THEN c.context_id END,
       c.latency_ms, c.outcome
FROM unnest($2::timestamptz[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::real[], $9::text[])
    AS c (at, request_id, principal, face, tool, context_id, latency_ms, outcome)
CROSS JOIN (SELECT set_config('synchronous_commit', 'off', true)) AS unhurried
WHERE EXISTS (SELECT FROM myria.tenants t WHERE t.tenant_id = $1 AND t.deleting_at IS NULL);

-- name: entries
-- Acts and refused attempts, newest first, of one tenant or of all.
SELECT tenant_id AS tenant, at, kind, actor, action, target, outcome, face, address, times, details
FROM myria.access_log
WHERE $1::text IS NULL OR tenant_id = $1
ORDER BY at DESC, entry_id DESC
LIMIT $2;

-- name: for_administrator
-- One page of a tenant's acts and refused attempts, newest first, before an entry, of those that are sought.
SELECT * FROM myria.audit_for($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- name: calls
-- Recorded calls, newest first, of one tenant or of all.
SELECT tenant_id AS tenant, at, request_id, principal, face, tool, context_id AS context, latency_ms, outcome
FROM myria.call_log
WHERE $1::text IS NULL OR tenant_id = $1
ORDER BY at DESC, entry_id DESC
LIMIT $2;

-- name: forget_entries
-- The next batch of acts and refused attempts that are too old.
DELETE FROM myria.access_log l USING (
    SELECT o.tenant_id, o.entry_id FROM myria.access_log o
    WHERE o.at < clock_timestamp() - make_interval(secs => $1) ORDER BY o.at LIMIT $2) old
WHERE l.tenant_id = old.tenant_id AND l.entry_id = old.entry_id;

-- name: forget_calls
-- The next batch of recorded calls that are too old.
DELETE FROM myria.call_log l USING (
    SELECT o.tenant_id, o.entry_id FROM myria.call_log o
    WHERE o.at < clock_timestamp() - make_interval(secs => $1) ORDER BY o.at LIMIT $2) old
WHERE l.tenant_id = old.tenant_id AND l.entry_id = old.entry_id;
