-- name: ensure_tenant
INSERT INTO myria.tenants (tenant_id) VALUES ($1) ON CONFLICT DO NOTHING;

-- name: ensure
-- Makes a scope with its members, or finds it. No row comes back when another transaction made it at the same
-- moment: ask again. With it comes since when the tenant exists: it may be deleted, and its name used again.
WITH made AS (
    INSERT INTO myria.scopes (tenant_id, scope_key, participants) VALUES ($1, $2, $3::text[])
    ON CONFLICT (tenant_id, scope_key) DO NOTHING
    RETURNING scope_id
), members AS (
    INSERT INTO myria.scope_members (tenant_id, participant, scope_id)
    SELECT $1, p, made.scope_id FROM made CROSS JOIN unnest($3::text[]) AS p
)
SELECT scope.scope_id, t.created_at AS tenant_since
FROM (
    SELECT scope_id FROM made
    UNION ALL
    SELECT scope_id FROM myria.scopes WHERE tenant_id = $1 AND scope_key = $2
) scope
JOIN myria.tenants t ON t.tenant_id = $1;
