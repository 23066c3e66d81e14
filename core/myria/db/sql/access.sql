-- name: epoch
-- Moves with every change of a key, or of who may use a tenant.
SELECT epoch FROM myria.access_epoch;

-- name: find_keys
-- The keys with these ids and digests of their secrets, in the order asked for, and the epoch before they were read.
-- An empty id means an access token or a session of the console: what it stands for, in the form of a key, or the sealed
-- token of an issuer that the session keeps. Only a key that ends some time may have been replaced.
SELECT e.epoch, k.*, c.*,
       CASE WHEN k.expires_at IS NULL THEN false ELSE myria.was_replaced(wanted.key_id, wanted.digest) END AS was_replaced
FROM myria.access_epoch e
CROSS JOIN unnest($1::text[], $2::bytea[]) WITH ORDINALITY AS wanted (key_id, digest, place)
LEFT JOIN LATERAL (
    SELECT * FROM myria.find_key(wanted.key_id, wanted.digest) WHERE wanted.key_id <> ''
    UNION ALL
    SELECT * FROM myria.find_token(wanted.digest) WHERE wanted.key_id = ''
) k ON true
LEFT JOIN LATERAL (SELECT * FROM myria.console_token(wanted.digest) WHERE wanted.key_id = '') c ON true
ORDER BY wanted.place;

-- name: console_sign_in
SELECT myria.console_sign_in($1, $2, $3, $4, $5, $6);

-- name: console_keep_token
SELECT myria.console_keep_token($1, $2, $3, $4, $5, $6, $7);

-- name: console_sign_out
SELECT myria.console_sign_out($1, $2);

-- name: tenant_state
-- Whether a tenant is there, suspended, or about to be deleted, and the epoch before it was read.
SELECT e.epoch, t.tenant_id IS NOT NULL AS found, t.suspended_at, t.deleting_at IS NOT NULL AS is_deleting
FROM myria.access_epoch e LEFT JOIN myria.tenants t ON t.tenant_id = $1;

-- name: note_uses
-- When keys were last used; a key that is gone by now is left out.
INSERT INTO myria.key_uses (tenant_id, key_id, last_used_at)
SELECT $1, u.key_id, clock_timestamp() FROM unnest($2::text[]) AS u (key_id)
ON CONFLICT (tenant_id, key_id) DO UPDATE SET last_used_at = EXCLUDED.last_used_at;

-- name: create_tenant
INSERT INTO myria.tenants (tenant_id) VALUES ($1) ON CONFLICT DO NOTHING RETURNING created_at;

-- name: tenants
-- Tenants by name, with what each may use where its row says so, and what it uses.
SELECT t.tenant_id, t.created_at, t.suspended_at, t.suspended_reason, t.deleting_at, t.removal_began_at,
       t.events_per_s, t.bytes_stored, t.concurrent_builds, t.model_tokens_per_day, t.redacted, t.turns_mode,
       (SELECT coalesce(sum(z.payload_bytes), 0)::bigint FROM myria.stored_sizes z WHERE z.tenant_id = t.tenant_id) AS stored,
       (SELECT count(*) FROM myria.builds b WHERE b.tenant_id = t.tenant_id AND b.finished_at IS NULL) AS builds,
       coalesce((SELECT u.tokens FROM myria.model_uses u
                 WHERE u.tenant_id = t.tenant_id AND u.day = (clock_timestamp() AT TIME ZONE 'UTC')::date), 0) AS model_tokens,
       (SELECT count(*) FROM myria.keys k WHERE k.tenant_id = t.tenant_id AND k.revoked_at IS NULL
           AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())) AS keys,
       a.snapshot_id
FROM myria.tenants t LEFT JOIN myria.active_snapshots a ON a.tenant_id = t.tenant_id
WHERE $1::text IS NULL OR t.tenant_id = $1
ORDER BY t.tenant_id;

-- name: tenant_in_use
-- What one tenant uses, and may use where its row says so, for its administrators.
SELECT t.created_at, t.events_per_s, t.bytes_stored, t.concurrent_builds, t.model_tokens_per_day,
       (SELECT coalesce(sum(z.payload_bytes), 0)::bigint FROM myria.stored_sizes z WHERE z.tenant_id = t.tenant_id) AS stored,
       (SELECT count(*) FROM myria.builds b WHERE b.tenant_id = t.tenant_id AND b.finished_at IS NULL) AS builds,
       coalesce((SELECT u.tokens FROM myria.model_uses u
                 WHERE u.tenant_id = t.tenant_id AND u.day = (clock_timestamp() AT TIME ZONE 'UTC')::date), 0) AS model_tokens,
       c.model_calls, c.model_microusd
FROM myria.tenants t,
     LATERAL (SELECT count(*) AS model_calls, coalesce(sum(c.cost_microusd), 0)::bigint AS model_microusd FROM myria.llm_calls c
              WHERE c.tenant_id = t.tenant_id AND c.created_at >= date_trunc('day', now(), 'UTC')) c
WHERE t.tenant_id = $1;

-- name: quotas
-- What one tenant may use and what is taken out of its payloads, where its row says so, and how many bytes it stores.
SELECT t.events_per_s, t.bytes_stored, t.redacted, t.turns_mode,
       (SELECT coalesce(sum(z.payload_bytes), 0)::bigint FROM myria.stored_sizes z WHERE z.tenant_id = $1) AS stored
FROM (SELECT) one LEFT JOIN myria.tenants t ON t.tenant_id = $1;

-- name: model_tokens
-- Tokens of models that a tenant has used today (UTC), and how many it may where its row says so.
SELECT t.model_tokens_per_day AS most,
       coalesce((SELECT u.tokens FROM myria.model_uses u
                 WHERE u.tenant_id = $1 AND u.day = (clock_timestamp() AT TIME ZONE 'UTC')::date), 0) AS used
FROM (SELECT) one LEFT JOIN myria.tenants t ON t.tenant_id = $1;

-- name: set_quotas
-- The quotas named in $2 become what the other arguments say.
UPDATE myria.tenants
SET events_per_s = CASE WHEN 'events_per_s' = ANY ($2::text[]) THEN $3 ELSE events_per_s END,
    bytes_stored = CASE WHEN 'bytes_stored' = ANY ($2::text[]) THEN $4 ELSE bytes_stored END,
    concurrent_builds = CASE WHEN 'concurrent_builds' = ANY ($2::text[]) THEN $5 ELSE concurrent_builds END,
    model_tokens_per_day = CASE WHEN 'model_tokens_per_day' = ANY ($2::text[]) THEN $6 ELSE model_tokens_per_day END
WHERE tenant_id = $1 RETURNING tenant_id;

-- name: set_redaction
UPDATE myria.tenants SET redacted = $2::text[] WHERE tenant_id = $1 RETURNING tenant_id;

-- name: set_turns
UPDATE myria.tenants SET turns_mode = $2 WHERE tenant_id = $1 RETURNING tenant_id;

-- name: suspend_tenant
UPDATE myria.tenants SET suspended_at = coalesce(suspended_at, clock_timestamp()), suspended_reason = $2
WHERE tenant_id = $1 RETURNING suspended_at;

-- name: resume_tenant
-- Ends a deletion too, as long as nothing was removed.
UPDATE myria.tenants SET suspended_at = NULL, suspended_reason = NULL, deleting_at = NULL
WHERE tenant_id = $1 AND removal_began_at IS NULL RETURNING tenant_id;

-- name: mark_deleting
-- Suspends a tenant for good; every later statement that would add rows to it is refused.
UPDATE myria.tenants
SET suspended_at = coalesce(suspended_at, clock_timestamp()), suspended_reason = coalesce(suspended_reason, 'being deleted'),
    deleting_at = coalesce(deleting_at, clock_timestamp())
WHERE tenant_id = $1 RETURNING removal_began_at;

-- name: newest_transaction
-- A number that every transaction of now lies below.
SELECT pg_snapshot_xmax(pg_current_snapshot());

-- name: transactions_ended
-- Whether every transaction below a number has ended.
SELECT pg_snapshot_xmin(pg_current_snapshot()) >= $1;

-- name: tables_of_tenants
SELECT name FROM myria.tables_of_tenants() AS name WHERE name <> 'tenants';

-- name: remove_of_tenant
SELECT myria.remove_of_tenant($1, $2, $3);

-- name: remains_of_tenant
SELECT name FROM myria.remains_of_tenant($1) AS name;

-- name: forget_tenant
SELECT myria.forget_tenant($1);

-- name: key_named
SELECT myria.living_key_named($1, $2);

-- name: create_key
INSERT INTO myria.keys (tenant_id, key_id, name, description, digest, roles, faces, own_participants, may_ask, channels,
    requests_per_s, concurrency, text_format, created_by, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,
    CASE WHEN $15::float8 IS NULL THEN NULL ELSE clock_timestamp() + make_interval(secs => $15) END);

-- name: keys
-- Keys by tenant and age, as they are shown: without their digests.
SELECT k.key_id, k.name, k.description, k.tenant_id AS tenant,
       CASE WHEN k.revoked_at IS NOT NULL THEN 'revoked'
            WHEN k.expires_at <= clock_timestamp() THEN 'expired'
            ELSE 'active' END AS state,
       k.roles, k.faces, k.own_participants AS "as", k.may_ask, k.channels, k.requests_per_s, k.concurrency,
       k.text_format AS format, k.created_by, k.replaces_key_id AS replaces,
       (SELECT n.key_id FROM myria.keys n WHERE n.tenant_id = k.tenant_id AND n.replaces_key_id = k.key_id
        ORDER BY n.created_at LIMIT 1) AS replaced_by,
       k.created_at, k.expires_at, k.revoked_at, u.last_used_at
FROM myria.keys k LEFT JOIN myria.key_uses u ON u.tenant_id = k.tenant_id AND u.key_id = k.key_id
WHERE ($1::text IS NULL OR k.tenant_id = $1) AND ($2::text IS NULL OR k.key_id = $2)
ORDER BY k.tenant_id, k.created_at, k.key_id;

-- name: hold_key
-- Nobody else changes a key until this transaction has ended.
SELECT FROM myria.keys WHERE key_id = $1 FOR UPDATE;

-- name: key_digest
SELECT k.tenant_id, k.digest FROM myria.keys k WHERE k.key_id = $1;

-- name: revoke_key
-- Ends a key, and tells whether it was ended before: of two at the same time, the second waits for the first.
UPDATE myria.keys k SET revoked_at = coalesce(k.revoked_at, clock_timestamp())
FROM (SELECT key_id, revoked_at FROM myria.keys WHERE key_id = $1 FOR UPDATE) before
WHERE k.key_id = before.key_id
RETURNING k.tenant_id, k.revoked_at, before.revoked_at IS NOT NULL AS was_revoked;

-- name: rotate_key
-- A key of the same rights and lifetime replaces one, which ends after some seconds, never later than it was to end.
WITH old AS (
    UPDATE myria.keys k
    SET expires_at = least(coalesce(k.expires_at, 'infinity'), clock_timestamp() + make_interval(secs => $5))
    FROM (SELECT key_id, expires_at - created_at AS lifetime FROM myria.keys WHERE key_id = $1) before
    WHERE k.key_id = before.key_id
    RETURNING k.*, before.lifetime)
INSERT INTO myria.keys (tenant_id, key_id, name, description, digest, roles, faces, own_participants, may_ask, channels,
    requests_per_s, concurrency, text_format, created_by, expires_at, replaces_key_id)
SELECT tenant_id, $2, name, description, $3, roles, faces, own_participants, may_ask, channels,
    requests_per_s, concurrency, text_format, $4, clock_timestamp() + lifetime, key_id
FROM old;
