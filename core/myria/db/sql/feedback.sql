-- name: fold
-- The events were stored by the statement before.
INSERT INTO myria.tool_feedback (tenant_id, event_seq, scope_id, tool, relevant, sufficient, said_at)
SELECT f.tenant_id, f.event_seq, f.scope_id, f.tool, f.relevant, f.sufficient, f.said_at
FROM unnest($2::bigint[]) AS stored (event_seq)
CROSS JOIN LATERAL (
    SELECT * FROM myria.tool_feedback_of_log x WHERE x.tenant_id = $1 AND x.event_seq = stored.event_seq OFFSET 0
) f
ON CONFLICT DO NOTHING;

-- name: by_tool
SELECT f.tool, count(*) AS said, count(*) FILTER (WHERE f.relevant) AS relevant,
       count(*) FILTER (WHERE f.sufficient) AS sufficient
FROM myria.tool_feedback f WHERE f.tenant_id = $1 GROUP BY f.tool ORDER BY f.tool;

-- name: of_tasks
-- What reflections say of how their tasks went, newest first; their number and that of those that succeeded stands in each row.
SELECT e.occurred_at AS said_at, e.context_id, e.payload->'about' AS about, count(*) OVER () AS said,
       count(*) FILTER (WHERE e.payload->'about'->>'overall_success' = 'true') OVER () AS succeeded
FROM myria.events e
WHERE e.tenant_id = $1 AND e.internal AND e.type = 'myria.session' AND jsonb_typeof(e.payload->'about') = 'object'
ORDER BY e.event_seq DESC LIMIT $2;

-- name: newest
-- The newest feedback that has words.
SELECT f.said_at, f.tool, f.relevant, f.sufficient, e.payload->'feedback'->>'suggestion' AS suggestion,
       e.payload->'feedback'->>'context' AS context, e.payload->'feedback'->>'notes' AS notes, e.event_id, e.context_id
FROM myria.tool_feedback f JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = f.event_seq
WHERE f.tenant_id = $1 AND e.payload->'feedback' ?| ARRAY['suggestion', 'context']
ORDER BY f.said_at DESC, f.event_seq DESC LIMIT $2;

-- name: is_there
-- Whether somebody said something of a tool, of the scopes that hold $2; of the one that holds nobody else where $3 is true.
SELECT EXISTS (
    SELECT FROM myria.tool_feedback f
    JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = f.scope_id
    WHERE f.tenant_id = $1 AND s.participants @> $2::text[] AND (NOT $3 OR s.participants <@ $2::text[]));
