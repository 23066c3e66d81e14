-- name: lock
-- Versions of one registration follow each other.
SELECT pg_advisory_xact_lock(key) FROM unnest($1::bigint[]) AS key;

-- name: standing
-- The newest version of registrations ($2 kind, $3 id) and its event.
SELECT asked.position, r.version, e.event_id
FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS asked (kind, id, position)
LEFT JOIN myria.registrations r ON r.tenant_id = $1 AND r.kind = asked.kind AND r.id = asked.id
LEFT JOIN LATERAL (
    SELECT x.event_id FROM myria.events x WHERE x.tenant_id = $1 AND x.event_seq = r.event_seq OFFSET 0
) e ON true
ORDER BY asked.position;

-- name: fold
-- The events were stored by the statement before. A name that another has is refused by its index.
INSERT INTO myria.registrations AS k (tenant_id, kind, id, scope_id, event_seq, first_seq, version, name, agent_id, status,
                                      created_at, updated_at)
SELECT DISTINCT ON (v.kind, v.id) v.tenant_id, v.kind, v.id, v.scope_id, v.event_seq, v.event_seq, v.version, v.name,
       v.agent_id, v.status, v.occurred_at, v.occurred_at
FROM unnest($2::bigint[]) AS stored (event_seq)
CROSS JOIN LATERAL (
    SELECT * FROM myria.registration_versions x WHERE x.tenant_id = $1 AND x.event_seq = stored.event_seq OFFSET 0
) v
ORDER BY v.kind, v.id, v.event_seq DESC
ON CONFLICT (tenant_id, kind, id) DO UPDATE SET
    event_seq = EXCLUDED.event_seq, version = EXCLUDED.version, name = EXCLUDED.name, agent_id = EXCLUDED.agent_id,
    status = EXCLUDED.status, updated_at = EXCLUDED.updated_at
WHERE k.scope_id = EXCLUDED.scope_id AND k.event_seq < EXCLUDED.event_seq;

-- name: by_id
-- A registration, and who may see it.
SELECT r.id, r.version, r.name, r.agent_id, r.status, r.created_at, r.updated_at, e.payload, s.participants
FROM myria.registrations r
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = r.scope_id
CROSS JOIN LATERAL (
    SELECT x.payload FROM myria.events x WHERE x.tenant_id = $1 AND x.event_seq = r.event_seq OFFSET 0
) e
WHERE r.tenant_id = $1 AND r.kind = $2 AND r.id = $3 AND r.status <> 'deleted';

-- name: agent_named
-- The agent of this name among those of a scope.
SELECT r.id, r.version, r.name, r.agent_id, r.status, r.created_at, r.updated_at, e.payload, s.participants
FROM myria.scopes s
JOIN myria.registrations r
    ON r.tenant_id = $1 AND r.scope_id = s.scope_id AND r.kind = 'agent' AND r.name = $3 AND r.status <> 'deleted'
CROSS JOIN LATERAL (
    SELECT x.payload FROM myria.events x WHERE x.tenant_id = $1 AND x.event_seq = r.event_seq OFFSET 0
) e
WHERE s.tenant_id = $1 AND s.scope_key = $2;

-- name: newest
-- The registrations of a scope, newest first; sessions of some names of an agent alone where these are given ($4).
SELECT r.id, r.version, r.name, r.agent_id, r.status, r.created_at, r.updated_at, e.payload
FROM myria.scopes s
JOIN myria.registrations r
    ON r.tenant_id = $1 AND r.scope_id = s.scope_id AND r.kind = $3 AND r.status <> 'deleted'
    AND ($4::text[] IS NULL OR r.agent_id = ANY ($4))
CROSS JOIN LATERAL (
    SELECT x.payload FROM myria.events x WHERE x.tenant_id = $1 AND x.event_seq = r.event_seq OFFSET 0
) e
WHERE s.tenant_id = $1 AND s.scope_key = $2
ORDER BY r.first_seq DESC
LIMIT $5 OFFSET $6;

-- name: sessions_of
-- How many sessions an agent has in a scope, and how many of them are open.
SELECT count(*) AS sessions, count(*) FILTER (WHERE r.status = 'active') AS active
FROM myria.scopes s
JOIN myria.registrations r ON r.tenant_id = $1 AND r.scope_id = s.scope_id AND r.kind = 'session' AND r.agent_id = ANY ($3::text[])
WHERE s.tenant_id = $1 AND s.scope_key = $2;
