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

-- name: people
-- One page of the participants of the scopes that all of $2 may see, by name, after $3.
SELECT m.participant, count(*) AS scopes
FROM myria.scope_members m
WHERE m.tenant_id = $1 AND m.participant > $3 AND starts_with(m.participant, $4)
  AND (cardinality($2::text[]) = 0 OR EXISTS (
      SELECT FROM myria.scopes s WHERE s.tenant_id = $1 AND s.scope_id = m.scope_id AND s.participants @> $2))
GROUP BY m.participant
ORDER BY m.participant
LIMIT $5;
