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
-- One page of the participants of the scopes that all of $5 may see, by name, after $2; of the scopes of the first of
-- them alone, so that it costs nothing for scopes of others.
SELECT p.participant, count(*) AS scopes
FROM myria.scope_members m
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = m.scope_id
CROSS JOIN LATERAL unnest(s.participants) AS p (participant)
WHERE m.tenant_id = $1 AND m.participant = ($5::text[])[1] AND s.participants @> $5
  AND p.participant > $2 AND starts_with(p.participant, $3)
GROUP BY p.participant
ORDER BY p.participant
LIMIT $4;

-- name: everybody
-- One page of the participants of all scopes, by name, after $2.
SELECT m.participant, count(*) AS scopes
FROM myria.scope_members m
WHERE m.tenant_id = $1 AND m.participant > $2 AND starts_with(m.participant, $3)
GROUP BY m.participant
ORDER BY m.participant
LIMIT $4;

-- name: names
-- The first $3 participants whose names begin with $2, by name: a look-up each, in however many scopes they are.
WITH RECURSIVE named AS (
    (SELECT m.participant FROM myria.scope_members m
     WHERE m.tenant_id = $1 AND m.participant >= $2 ORDER BY m.participant LIMIT 1)
    UNION ALL
    SELECT (SELECT m.participant FROM myria.scope_members m
            WHERE m.tenant_id = $1 AND m.participant > named.participant ORDER BY m.participant LIMIT 1)
    FROM named WHERE starts_with(named.participant, $2)
)
SELECT n.participant FROM named n WHERE starts_with(n.participant, $2) LIMIT $3;

-- name: names_beside
-- The first $4 participants of scopes that all of $2 may see, by name: of the $3 scopes made last.
SELECT DISTINCT p.participant
FROM (
    SELECT m.scope_id FROM myria.scope_members m
    WHERE m.tenant_id = $1 AND m.participant = ($2::text[])[1]
    ORDER BY m.scope_id DESC LIMIT $3
) newest
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = newest.scope_id
CROSS JOIN LATERAL unnest(s.participants) AS p (participant)
WHERE s.participants @> $2::text[]
ORDER BY p.participant
LIMIT $4;
