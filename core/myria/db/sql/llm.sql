-- name: share_audit_lock
-- Held by every transaction that writes an audit beside the log; an erasure owns it for a moment.
SELECT pg_advisory_xact_lock_shared($1::bigint);

-- name: own_audit_lock
SELECT pg_advisory_xact_lock($1::bigint);

-- name: write_call
-- Of a call that could see a scope of which something is being erased that was there when its prompt was read, no text
-- and no digest is kept; see `calls` for how long ago that may be.
INSERT INTO myria.llm_calls (tenant_id, call_id, workflow, build_id, scope_id, unit, request_id, round, attempt, mask,
                             mask_scopes, model, structure, prompt, prompt_sha256, prompt_bytes, reply, reply_sha256,
                             reply_bytes, tools, input_tokens, output_tokens, cost_microusd, latency_ms, outcome, message)
SELECT $1, $2, $3, $4, $5::bigint, $6::bytea, $7, $8::integer, $9::integer, $10::text[], $11::bigint[], $12, $13,
       CASE WHEN kept THEN $14::text END, CASE WHEN kept THEN $15::bytea END, $16::integer,
       CASE WHEN kept THEN $17::text END, CASE WHEN kept THEN $18::bytea END, $19::integer,
       CASE WHEN kept THEN $20::jsonb ELSE '[]' END, $21::integer, $22::integer, $23::bigint, $24::integer, $25,
       CASE WHEN kept THEN $26::text END
FROM (
    SELECT NOT EXISTS (
        SELECT FROM myria.erased x
        JOIN myria.withdrawn w ON w.tenant_id = $1 AND w.event_seq = x.event_seq AND w.reason = 'forgotten'
        JOIN myria.events b ON b.tenant_id = $1 AND b.event_seq = w.by_event_seq
        WHERE x.tenant_id = $1 AND x.scope_id = ANY ($11::bigint[])
          AND CASE WHEN $4::text IS NULL THEN b.ingested_at > clock_timestamp() - interval '2 hours'
                   ELSE w.by_event_seq > coalesce((
                       SELECT d.cutoff FROM myria.builds d WHERE d.tenant_id = $1 AND d.build_id = $4), 0)
              END) AS kept
) erased;

-- name: calls
-- The audit, newest first; nulls ask for all. Of a call that could see a scope of which something was withdrawn
-- after what its prompt was made of was read, no text is shown, nor the tools' arguments and the message, which a model
-- may have made of it. A build reads up to its cutoff. A walk is written down after it has ended, and took two hours at
-- most: as long as the settings let it wait, and the request before it.
SELECT call_id, workflow, build_id, scope_id, unit, request_id, round, attempt, mask, mask_scopes, model, structure,
       CASE WHEN NOT is_withheld THEN prompt END AS prompt, prompt_sha256, prompt_bytes,
       CASE WHEN NOT is_withheld THEN reply END AS reply, reply_sha256, reply_bytes,
       CASE WHEN is_withheld THEN '[]'::jsonb ELSE tools END AS tools, input_tokens, output_tokens,
       cost_microusd, latency_ms, outcome, CASE WHEN NOT is_withheld THEN message END AS message, created_at, is_withheld
FROM myria.llm_calls c
CROSS JOIN LATERAL (
    SELECT EXISTS (
        SELECT FROM myria.withdrawn w
        JOIN myria.events b ON b.tenant_id = $1 AND b.event_seq = w.by_event_seq
        WHERE w.tenant_id = $1 AND w.scope_id = ANY (c.mask_scopes) AND w.reason <> 'restored'
          AND CASE WHEN c.build_id IS NULL THEN b.ingested_at > c.created_at - interval '2 hours'
                   ELSE w.by_event_seq > coalesce((
                       SELECT d.cutoff FROM myria.builds d WHERE d.tenant_id = $1 AND d.build_id = c.build_id), 0)
              END
    ) OR EXISTS (
        SELECT FROM myria.ended_notes($1, now()) d WHERE d.scope_id = ANY (c.mask_scopes)
    ) AS is_withheld
) withheld
WHERE tenant_id = $1 AND ($2::text IS NULL OR build_id = $2) AND ($3::text IS NULL OR workflow = $3)
  AND (NOT $4 OR outcome <> 'ok')
ORDER BY created_at DESC, call_id DESC
LIMIT $5;

-- name: spent_by_build
-- What a build asked of models, by the work and the model. Calls that are too old are no longer counted.
SELECT workflow, model, count(*) AS calls, count(*) FILTER (WHERE outcome <> 'ok') AS failed,
       sum(input_tokens)::bigint AS input_tokens, sum(output_tokens)::bigint AS output_tokens,
       sum(cost_microusd)::bigint AS cost_microusd
FROM myria.llm_calls
WHERE tenant_id = $1 AND build_id = $2
GROUP BY workflow, model
ORDER BY calls DESC, workflow, model
LIMIT 20;

-- name: prune_calls
-- The next batch of calls that are too old.
DELETE FROM myria.llm_calls c
WHERE c.tenant_id = $1 AND c.call_id IN (
    SELECT o.call_id FROM myria.llm_calls o
    WHERE o.tenant_id = $1 AND o.created_at < clock_timestamp() - make_interval(secs => $2)
    ORDER BY o.created_at LIMIT $3);

-- name: topics
-- Topics with their children's renderings, in the order asked for; only of the scopes in force. Past $4 withdrawals are
-- not in the trees.
SELECT r.rendering_id, r.scope_id, r.node_id, r.node_type, r.level, r.topic_id, r.label, r.summary, r.children, r.is_unit,
       r.events, r.leaves, r.first_at, r.last_at, s.participants,
       myria.covers_withdrawn($1, r.scope_id, r.first_at, r.last_at, $4) AS covers_withdrawn
FROM unnest($2::bytea[]) WITH ORDINALITY AS wanted (rendering_id, position)
JOIN myria.renderings r ON r.tenant_id = $1 AND r.rendering_id = wanted.rendering_id
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = r.scope_id
WHERE r.scope_id = ANY ($3::bigint[])
ORDER BY wanted.position;

-- name: leaf_refs
-- The references of one leaf, in their order; only of the scopes in force.
SELECT ref.event_seq, ref.position, e.event_id, e.scope_id, e.occurred_at, e.utc_offset, e.channel, e.type, s.participants
FROM myria.renderings r
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = r.scope_id
JOIN myria.nodes n ON n.tenant_id = $1 AND n.node_id = r.node_id
CROSS JOIN LATERAL unnest(n.event_seqs) WITH ORDINALITY AS ref (event_seq, position)
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = ref.event_seq AND e.scope_id = r.scope_id
WHERE r.tenant_id = $1 AND r.rendering_id = $2 AND r.scope_id = ANY ($3::bigint[]) AND NOT e.internal
  AND NOT coalesce((SELECT x.reason <> 'restored' FROM myria.withdrawn x
                     WHERE x.tenant_id = $1 AND x.event_seq = e.event_seq
                     ORDER BY x.by_event_seq DESC LIMIT 1), false)
  AND e.event_seq NOT IN (SELECT d.event_seq FROM myria.ended_events($1, now()) d)
ORDER BY ref.position;

-- name: events
-- Whole events of the scopes in force, in the order asked for.
SELECT e.event_seq, e.event_id, e.scope_id, e.occurred_at, e.utc_offset, e.channel, e.type, e.context_id, e.payload,
       e.internal, s.participants
FROM unnest($2::bigint[]) WITH ORDINALITY AS wanted (event_seq, position)
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = wanted.event_seq
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = e.scope_id
WHERE e.scope_id = ANY ($3::bigint[])
  AND NOT coalesce((SELECT x.reason <> 'restored' FROM myria.withdrawn x
                     WHERE x.tenant_id = $1 AND x.event_seq = e.event_seq
                     ORDER BY x.by_event_seq DESC LIMIT 1), false)
  AND e.event_seq NOT IN (SELECT d.event_seq FROM myria.ended_events($1, now()) d)
ORDER BY wanted.position;

-- name: plan
SELECT plan FROM myria.unit_plans WHERE tenant_id = $1 AND scope_id = $2 AND unit = $3 AND planner = $4;

-- name: plans
-- Every plan of a scope under one planner.
SELECT unit, plan FROM myria.unit_plans WHERE tenant_id = $1 AND scope_id = $2 AND planner = $3;

-- name: planned_units
SELECT unit FROM myria.unit_plans WHERE tenant_id = $1 AND scope_id = $2 AND planner = $3;

-- name: write_plan
-- The first valid plan of a unit stays: whoever comes later reads it.
INSERT INTO myria.unit_plans (tenant_id, scope_id, unit, planner, plan, model, build_id)
VALUES ($1, $2, $3, $4, $5::jsonb, $6, $7)
ON CONFLICT DO NOTHING;

-- name: note_plans
-- From now on builds of this tenant look for stored plans; before, none does.
UPDATE myria.tenants SET llm_planned_at = clock_timestamp() WHERE tenant_id = $1 AND llm_planned_at IS NULL;

-- name: note_unit
-- A task that is done again says again how it planned a unit.
INSERT INTO myria.build_units (tenant_id, build_id, scope_id, unit, planned, reason)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (tenant_id, build_id, scope_id, unit) DO UPDATE SET planned = EXCLUDED.planned, reason = EXCLUDED.reason;

-- name: build_unit
SELECT planned FROM myria.build_units WHERE tenant_id = $1 AND build_id = $2 AND scope_id = $3 AND unit = $4;

-- name: build_tasks
-- The scopes of a build with the roots it gave them.
SELECT t.scope_id, s.participants, t.root_rendering_id, t.status, (t.counts->>'events_eligible')::bigint AS eligible,
       EXISTS (SELECT FROM myria.build_units u WHERE u.tenant_id = $1 AND u.build_id = $2 AND u.scope_id = t.scope_id)
           AS has_plans
FROM myria.build_tasks t
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = t.scope_id
WHERE t.tenant_id = $1 AND t.build_id = $2
ORDER BY t.scope_id;
