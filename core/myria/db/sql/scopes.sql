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
SELECT DISTINCT p.participant
FROM myria.scope_members m
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = m.scope_id
CROSS JOIN LATERAL unnest(s.participants) AS p (participant)
WHERE m.tenant_id = $1 AND m.participant = ($5::text[])[1] AND s.participants @> $5
  AND p.participant > $2 AND starts_with(p.participant, $3)
ORDER BY p.participant
LIMIT $4;

-- name: names
-- The first $4 participants after $2 whose names begin with $3, by name: a look-up each, in however many scopes they are.
-- With $5 only those who have an event that is neither internal nor withdrawn among the newest $5 of their newest $5 scopes.
WITH RECURSIVE named AS (
    (SELECT m.participant FROM myria.scope_members m
     WHERE m.tenant_id = $1 AND m.participant >= $3 AND m.participant > $2 ORDER BY m.participant LIMIT 1)
    UNION ALL
    SELECT (SELECT m.participant FROM myria.scope_members m
            WHERE m.tenant_id = $1 AND m.participant > named.participant ORDER BY m.participant LIMIT 1)
    FROM named WHERE starts_with(named.participant, $3)
)
SELECT n.participant FROM named n
WHERE starts_with(n.participant, $3) AND ($5::bigint IS NULL OR EXISTS (
    SELECT FROM (SELECT m.scope_id FROM myria.scope_members m
                 WHERE m.tenant_id = $1 AND m.participant = n.participant ORDER BY m.scope_id DESC LIMIT $5) newest
    CROSS JOIN LATERAL (SELECT e.event_seq, e.internal FROM myria.events e WHERE e.tenant_id = $1 AND e.scope_id = newest.scope_id
                        ORDER BY e.occurred_at DESC, e.event_seq DESC LIMIT $5) e
    WHERE NOT e.internal
      AND coalesce((SELECT w.reason FROM myria.withdrawn w WHERE w.tenant_id = $1 AND w.event_seq = e.event_seq
                    ORDER BY w.by_event_seq DESC LIMIT 1), 'restored') = 'restored'))
LIMIT $4;

-- name: names_beside
-- The first $4 participants of scopes that all of $2 may see and that have such an event among their newest $5, by name: of
-- the $3 scopes made last. (OFFSET 0: look each up by its key.)
SELECT DISTINCT p.participant
FROM (
    SELECT m.scope_id FROM myria.scope_members m
    WHERE m.tenant_id = $1 AND m.participant = ($2::text[])[1]
    ORDER BY m.scope_id DESC LIMIT $3
) newest
CROSS JOIN LATERAL (
    SELECT x.participants FROM myria.scopes x WHERE x.tenant_id = $1 AND x.scope_id = newest.scope_id OFFSET 0
) s
CROSS JOIN LATERAL unnest(s.participants) AS p (participant)
WHERE s.participants @> $2::text[] AND EXISTS (
    SELECT FROM (SELECT e.event_seq, e.internal FROM myria.events e WHERE e.tenant_id = $1 AND e.scope_id = newest.scope_id
                 ORDER BY e.occurred_at DESC, e.event_seq DESC LIMIT $5) e
    WHERE NOT e.internal
      AND coalesce((SELECT w.reason FROM myria.withdrawn w WHERE w.tenant_id = $1 AND w.event_seq = e.event_seq
                    ORDER BY w.by_event_seq DESC LIMIT 1), 'restored') = 'restored')
ORDER BY p.participant
LIMIT $4;
