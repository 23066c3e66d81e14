-- name: listed
-- Notes in some states of review ($2), decided or held last first, before an event ($3), of a kind ($4), and with a
-- participant ($5); nulls ask for all.
SELECT n.note_id, n.review, n.review_seq, n.kind, n.topic, n.context_id, e.event_id, e.occurred_at, e.payload,
       s.participants, d.payload AS decision, d.ingested_at AS since
FROM (
    SELECT x.* FROM myria.notes x
    JOIN myria.scopes p ON p.tenant_id = $1 AND p.scope_id = x.scope_id
    WHERE x.tenant_id = $1 AND x.review = ANY ($2::text[]) AND ($3::bigint IS NULL OR x.review_seq < $3)
      AND ($4::text IS NULL OR x.kind = $4) AND ($5::text IS NULL OR $5 = ANY (p.participants))
    ORDER BY x.review_seq DESC LIMIT $6
) n
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = n.event_seq
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = n.scope_id
JOIN myria.events d ON d.tenant_id = $1 AND d.event_seq = n.review_seq
ORDER BY n.review_seq DESC;

-- name: waiting
-- How many notes wait for a review, counted up to $2.
SELECT count(*) FROM (SELECT FROM myria.notes n WHERE n.tenant_id = $1 AND n.review = 'held' LIMIT $2) few;

-- name: state
-- A note as a decision needs it, and as a list shows it.
SELECT n.note_id, n.review, n.scope_id, n.event_seq, n.kind, n.topic, n.context_id, e.event_id, e.occurred_at, e.utc_offset,
       e.channel, e.payload, s.participants, d.payload AS decision, d.ingested_at AS since
FROM myria.notes n
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = n.event_seq
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = n.scope_id
LEFT JOIN myria.events d ON d.tenant_id = $1 AND d.event_seq = n.review_seq
WHERE n.tenant_id = $1 AND n.note_id = $2;

-- name: replaces
-- What notes under review ($2) replace, or would: those that they name, a live one that says the same, and of facts the
-- live one of the same session and identity.
SELECT h.note_id AS held_id, m.note_id, m.kind, m.live, e.event_id, e.payload->>'text' AS text
FROM unnest($2::text[]) AS given
JOIN myria.notes h ON h.tenant_id = $1 AND h.note_id = given
JOIN myria.events he ON he.tenant_id = $1 AND he.event_seq = h.event_seq
CROSS JOIN LATERAL (
    SELECT jsonb_array_elements_text(
        CASE WHEN jsonb_typeof(he.payload->'note'->'held'->'replaces') = 'array'
             THEN he.payload->'note'->'held'->'replaces' ELSE '[]' END) AS note_id
    UNION
    SELECT x.note_id FROM myria.notes x
    WHERE x.tenant_id = $1 AND x.scope_id = h.scope_id AND x.digest = h.digest AND x.live
      AND x.kind NOT IN ('episodic', 'session', 'entity')
    UNION
    SELECT x.note_id FROM myria.notes x
    JOIN myria.events xe ON xe.tenant_id = $1 AND xe.event_seq = x.event_seq
    WHERE h.kind IN ('fact_l0', 'fact_l1', 'fact_l2') AND x.tenant_id = $1 AND x.scope_id = h.scope_id
      AND x.context_id = h.context_id AND x.live AND x.kind IN ('fact_l0', 'fact_l1', 'fact_l2')
      AND lower(xe.payload->'note'->'fact'->>'fact_id') = lower(he.payload->'note'->'fact'->>'fact_id')
      AND lower(xe.payload->'note'->'fact'->>'key') = lower(he.payload->'note'->'fact'->>'key')
) named
JOIN myria.notes m ON m.tenant_id = $1 AND m.note_id = named.note_id AND m.note_id <> h.note_id
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = m.event_seq
ORDER BY h.note_id, m.event_seq;

-- name: replaced
-- The events that one ($2) has superseded, of which nothing else became since, and that nobody has said again.
SELECT e.event_id, e.scope_id, e.occurred_at, s.participants
FROM (SELECT r.event_seq FROM myria.replaced_events r WHERE r.tenant_id = $1 AND r.superseded_by = $2 OFFSET 0) replaced
CROSS JOIN LATERAL (SELECT * FROM myria.events x WHERE x.tenant_id = $1 AND x.event_seq = replaced.event_seq OFFSET 0) e
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = e.scope_id
LEFT JOIN myria.notes n ON n.tenant_id = $1 AND n.event_seq = e.event_seq
WHERE NOT EXISTS (SELECT FROM myria.notes k
                  WHERE k.tenant_id = $1 AND k.scope_id = n.scope_id AND k.digest = n.digest AND k.live
                    AND k.event_seq <> $2 AND k.kind NOT IN ('episodic', 'session', 'entity'))
ORDER BY e.event_seq;

-- name: ending
-- Notes ($2) whose newest version ends because of an event ($3), with the version before it.
SELECT n.note_id, n.version, n.context_id, e.event_id, n.changed_at, s.participants, p.payload
FROM myria.notes n
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = n.scope_id
CROSS JOIN LATERAL (
    SELECT x.event_id, x.payload FROM myria.events x WHERE x.tenant_id = $1 AND x.event_seq = n.event_seq OFFSET 0
) e
CROSS JOIN LATERAL (
    SELECT x.payload FROM myria.events x
    WHERE x.tenant_id = $1 AND x.event_id = e.payload->'note'->>'previous' OFFSET 0
) p
WHERE n.tenant_id = $1 AND n.note_id = ANY ($2::text[]) AND n.live AND e.payload->'note'->>'replaced_by' = $3;

-- name: evidence
-- What was said last before some notes ($2) in their conversations, at most $3 of each; only near in time is looked.
SELECT n.note_id, near.event_id, near.occurred_at, near.payload
FROM unnest($2::text[]) AS given
JOIN myria.notes n ON n.tenant_id = $1 AND n.note_id = given AND n.context_id IS NOT NULL
CROSS JOIN LATERAL (
    SELECT b.event_id, b.event_seq, b.occurred_at, b.payload
    FROM (
        SELECT e.* FROM myria.events e
        WHERE e.tenant_id = $1 AND e.scope_id = n.scope_id
          AND (e.occurred_at, e.event_seq) < (n.changed_at, n.event_seq)
        ORDER BY e.occurred_at DESC, e.event_seq DESC LIMIT $4
    ) b
    WHERE b.context_id = n.context_id AND NOT b.internal
      AND NOT coalesce((SELECT w.reason <> 'restored' FROM myria.withdrawn w
                        WHERE w.tenant_id = $1 AND w.event_seq = b.event_seq
                        ORDER BY w.by_event_seq DESC LIMIT 1), false)
    ORDER BY b.occurred_at DESC, b.event_seq DESC LIMIT $3
) near
ORDER BY n.note_id, near.occurred_at, near.event_seq;
