-- name: ensure_tenant
INSERT INTO myria.tenants (tenant_id) VALUES ($1) ON CONFLICT DO NOTHING;

-- name: ensure
-- Makes a scope with its members, or finds it. No row comes back when another transaction made it at the same
-- moment: ask again.
WITH made AS (
    INSERT INTO myria.scopes (tenant_id, scope_key, participants) VALUES ($1, $2, $3::text[])
    ON CONFLICT (tenant_id, scope_key) DO NOTHING
    RETURNING scope_id
), members AS (
    INSERT INTO myria.scope_members (tenant_id, participant, scope_id)
    SELECT $1, p, made.scope_id FROM made CROSS JOIN unnest($3::text[]) AS p
)
SELECT scope_id FROM made
UNION ALL
SELECT scope_id FROM myria.scopes WHERE tenant_id = $1 AND scope_key = $2;

-- name: find
SELECT scope_id FROM myria.scopes WHERE tenant_id = $1 AND scope_key = $2;

-- name: visible
-- The scopes whose participants include everyone who asks, driven by the participant with the fewest scopes.
WITH asked AS (
    SELECT p, (SELECT count(*) FROM (
        SELECT FROM myria.scope_members m WHERE m.tenant_id = $1 AND m.participant = p LIMIT 1025) few) AS scopes
    FROM unnest($2::text[]) AS p
), driver AS (
    SELECT p FROM asked ORDER BY scopes, p COLLATE "C" LIMIT 1
)
SELECT s.scope_id, s.participants
FROM myria.scope_members m
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = m.scope_id
WHERE m.tenant_id = $1
  AND m.participant = (SELECT p FROM driver)
  AND NOT EXISTS (
      SELECT FROM unnest($2::text[]) AS other
      WHERE NOT EXISTS (
          SELECT FROM myria.scope_members x
          WHERE x.tenant_id = $1 AND x.participant = other AND x.scope_id = m.scope_id))
ORDER BY s.scope_id;
