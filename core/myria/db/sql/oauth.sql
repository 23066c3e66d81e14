-- name: client
SELECT client_id, name, redirect_uris FROM myria.oauth_client($1, $2);

-- name: register
SELECT myria.oauth_register($1, $2, $3, $4, $5, $6, $7);

-- name: grant
SELECT myria.oauth_grant($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- name: exchange
SELECT myria.oauth_exchange($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- name: revoke
SELECT myria.oauth_revoke($1, $2);

-- name: grants
-- Grants by tenant and age, of one tenant or of all, or the one of an id. A code that was never exchanged is `waiting`,
-- then `expired`.
SELECT g.grant_id::text, g.tenant_id AS tenant,
       CASE WHEN g.ended_at IS NOT NULL THEN 'ended'
            WHEN g.expires_at <= clock_timestamp() THEN 'expired'
            WHEN k.revoked_at IS NOT NULL OR k.expires_at <= clock_timestamp() THEN 'key_ended'
            WHEN g.code_used_at IS NULL THEN 'waiting'
            ELSE 'active' END AS state,
       c.name AS client, g.client_id, g.key_id, k.name AS key, g.face, g.scopes, g.ended_reason, g.created_at,
       greatest(g.code_used_at, (SELECT max(o.used_at) FROM myria.oauth_tokens o
                                 WHERE o.tenant_id = g.tenant_id AND o.grant_id = g.grant_id)) AS last_used_at,
       g.expires_at, g.ended_at
FROM myria.oauth_grants g
JOIN myria.keys k ON k.tenant_id = g.tenant_id AND k.key_id = g.key_id
JOIN myria.oauth_clients c ON c.client_id = g.client_id
WHERE ($1::text IS NULL OR g.tenant_id = $1) AND ($2::uuid IS NULL OR g.grant_id = $2)
ORDER BY g.tenant_id, g.created_at, g.grant_id;

-- name: end_grant
-- A grant ends with all its tokens; what the journal says of it, or no row where it had ended.
UPDATE myria.oauth_grants g SET ended_at = clock_timestamp(), ended_reason = $2
FROM myria.oauth_clients c
WHERE g.grant_id = $1 AND g.ended_at IS NULL AND c.client_id = g.client_id
RETURNING g.tenant_id, g.key_id, g.client_id, c.name AS client, g.scopes;
