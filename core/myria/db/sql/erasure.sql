-- name: ensure_secret
-- The key of refused keys, which appends need.
INSERT INTO myria.erasure_secrets (tenant_id, secret) VALUES ($1, $2) ON CONFLICT DO NOTHING;

-- name: ensure_receipt_secret
INSERT INTO myria.receipt_secrets (tenant_id, secret) VALUES ($1, $2) ON CONFLICT DO NOTHING;

-- name: receipt_secret
-- The key of the chain of receipts.
SELECT secret FROM myria.receipt_secrets WHERE tenant_id = $1;

-- name: lock
-- One erasure of a tenant goes on at a time.
SELECT pg_advisory_xact_lock($1::bigint);

-- name: create
INSERT INTO myria.erasures (tenant_id, erasure_id, selected, actor, reason, receipt_key, proved)
VALUES ($1, $2, $3::jsonb, $4, $5, $6, $7);

-- name: prove
SELECT myria.prove_erasure($1, $2, $3, $4);

-- name: list_named
-- Events by id ($3) or by dedupe key ($4), none twice, and no withdrawal: it holds no word. As the other lists, it takes
-- over what is on a list that nobody proved, and leaves what another erasure has.
INSERT INTO myria.erased (tenant_id, event_seq, scope_id, erasure_id)
SELECT DISTINCT $1::text, e.event_seq, e.scope_id, $2::text
FROM (
    SELECT x.* FROM unnest($3::text[]) AS named JOIN myria.events x ON x.tenant_id = $1 AND x.event_id = named
    UNION ALL
    SELECT x.* FROM unnest($4::bytea[]) AS named JOIN myria.events x ON x.tenant_id = $1 AND x.dedupe_key = named
) e
WHERE e.type IS DISTINCT FROM 'myria.withdrawal'
ON CONFLICT (tenant_id, event_seq) DO UPDATE SET erasure_id = EXCLUDED.erasure_id
WHERE erased.erased_at IS NULL AND erased.erasure_id <> EXCLUDED.erasure_id AND NOT EXISTS (
    SELECT FROM myria.erasures o WHERE o.tenant_id = $1 AND o.erasure_id = erased.erasure_id AND o.proved);

-- name: list_of_scopes
-- Events of a participant: of scopes where nobody else is, and with $4 of shared ones too.
INSERT INTO myria.erased (tenant_id, event_seq, scope_id, erasure_id)
SELECT DISTINCT $1::text, e.event_seq, e.scope_id, $2::text
FROM myria.scope_members m
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = m.scope_id
JOIN myria.events e ON e.tenant_id = $1 AND e.scope_id = s.scope_id
WHERE m.tenant_id = $1 AND m.participant = ANY ($3::text[]) AND (s.participants <@ $3::text[] OR $4)
  AND e.type IS DISTINCT FROM 'myria.withdrawal'
ON CONFLICT (tenant_id, event_seq) DO UPDATE SET erasure_id = EXCLUDED.erasure_id
WHERE erased.erased_at IS NULL AND erased.erasure_id <> EXCLUDED.erasure_id AND NOT EXISTS (
    SELECT FROM myria.erasures o WHERE o.tenant_id = $1 AND o.erasure_id = erased.erasure_id AND o.proved);

-- name: count_shared
-- What others share with a participant: events that are kept, or go as well.
SELECT count(DISTINCT e.event_seq)
FROM myria.scope_members m
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = m.scope_id
JOIN myria.events e ON e.tenant_id = $1 AND e.scope_id = s.scope_id
WHERE m.tenant_id = $1 AND m.participant = ANY ($2::text[]) AND NOT s.participants <@ $2::text[]
  AND e.type IS DISTINCT FROM 'myria.withdrawal'
  AND NOT EXISTS (SELECT FROM myria.erased x WHERE x.tenant_id = $1 AND x.event_seq = e.event_seq AND x.erased_at IS NOT NULL);

-- name: list_matching
-- Events by note ($3), context ($4), or words in this order whatever their case ($5, empty: none): one pass over the log.
INSERT INTO myria.erased (tenant_id, event_seq, scope_id, erasure_id)
SELECT $1, e.event_seq, e.scope_id, $2
FROM myria.events e
WHERE e.tenant_id = $1 AND e.type IS DISTINCT FROM 'myria.withdrawal'
  AND (e.type = 'myria.note' AND e.payload->'note'->>'id' = ANY ($3::text[]) OR e.context_id = ANY ($4::text[])
       OR $5 <> '' AND position(lower($5) IN lower(concat_ws(E'\n', (
           SELECT string_agg(word #>> '{}', E'\n') FROM jsonb_path_query(e.payload, 'strict $.** ? (@.type() == "string")') AS word
       ), e.topic_hints::text, e.source_event_key, e.context_id))) > 0)
ON CONFLICT (tenant_id, event_seq) DO UPDATE SET erasure_id = EXCLUDED.erasure_id
WHERE erased.erased_at IS NULL AND erased.erasure_id <> EXCLUDED.erasure_id AND NOT EXISTS (
    SELECT FROM myria.erasures o WHERE o.tenant_id = $1 AND o.erasure_id = erased.erasure_id AND o.proved);

-- name: expand
-- With a version of a note go its other versions, its ratings, and the links from and to it, whose reasons may quote.
WITH notes AS (
    SELECT DISTINCT e.payload->'note'->>'id' AS note_id
    FROM myria.erased x
    JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = x.event_seq
    WHERE x.tenant_id = $1 AND x.erasure_id = $2 AND x.erased_at IS NULL AND e.type = 'myria.note'
)
INSERT INTO myria.erased (tenant_id, event_seq, scope_id, erasure_id)
SELECT $1, e.event_seq, e.scope_id, $2
FROM myria.events e
WHERE e.tenant_id = $1 AND EXISTS (SELECT FROM notes)
  AND (e.type = 'myria.note' AND e.payload->'note'->>'id' IN (SELECT note_id FROM notes)
       OR e.type = 'myria.evaluation' AND e.payload->'evaluation'->>'note' IN (SELECT note_id FROM notes)
       OR e.type = 'myria.link' AND (e.payload->'link'->>'from' IN (SELECT note_id FROM notes)
                                     OR e.payload->'link'->>'to' IN (SELECT note_id FROM notes)))
ON CONFLICT DO NOTHING;

-- name: listed
-- A page of what an erasure takes: never their words.
SELECT x.event_seq, e.event_id, e.occurred_at, s.participants
FROM myria.erased x
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = x.event_seq
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = x.scope_id
WHERE x.tenant_id = $1 AND x.erasure_id = $2 AND x.event_seq > $3
ORDER BY x.event_seq LIMIT $4;

-- name: numbers
SELECT x.event_seq FROM myria.erased x WHERE x.tenant_id = $1 AND x.erasure_id = $2 ORDER BY x.event_seq;

-- name: scopes
SELECT DISTINCT x.scope_id FROM myria.erased x WHERE x.tenant_id = $1 AND x.erasure_id = $2 ORDER BY x.scope_id;

-- name: people
-- Everybody who took part in an event of an erasure.
SELECT DISTINCT p.participant
FROM (SELECT DISTINCT x.scope_id FROM myria.erased x WHERE x.tenant_id = $1 AND x.erasure_id = $2) listed
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = listed.scope_id
CROSS JOIN LATERAL unnest(s.participants) AS p (participant);

-- name: get
SELECT erasure_id, state, selected::text AS selected, actor, reason, counts::text AS counts, receipt_key, number, receipt, mac,
       created_at, finished_at
FROM myria.erasures WHERE tenant_id = $1 AND erasure_id = $2;

-- name: reach
-- The next state, and how many rows went where so far.
UPDATE myria.erasures SET state = $3, counts = coalesce($4::jsonb, counts)
WHERE tenant_id = $1 AND erasure_id = $2 AND state <> 'done';

-- name: to_withdraw
-- What is listed and still answered, scope by scope; at most $3.
SELECT e.event_id, e.scope_id, e.occurred_at, s.participants
FROM myria.erased x
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = x.event_seq
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = x.scope_id
WHERE x.tenant_id = $1 AND x.erasure_id = $2 AND x.erased_at IS NULL
  AND (SELECT w.reason FROM myria.withdrawn w WHERE w.tenant_id = $1 AND w.event_seq = x.event_seq
       ORDER BY w.by_event_seq DESC LIMIT 1) IS DISTINCT FROM 'forgotten'
ORDER BY x.scope_id, x.event_seq LIMIT $3;

-- name: newest_withdrawal
SELECT coalesce(max(w.by_event_seq), 0)
FROM myria.erased x JOIN myria.withdrawn w ON w.tenant_id = $1 AND w.event_seq = x.event_seq
WHERE x.tenant_id = $1 AND x.erasure_id = $2;

-- name: older_build
-- A build that was captured before the events were withdrawn, or whose worker may still be at work.
SELECT b.build_id, b.finished_at IS NULL AS is_open
FROM myria.builds b
WHERE b.tenant_id = $1 AND b.cutoff < $2
  AND (b.finished_at IS NULL
       OR b.status IN ('aborted', 'failed') AND EXISTS (
           SELECT FROM myria.build_tasks t WHERE t.tenant_id = $1 AND t.build_id = b.build_id
           AND t.status = 'pending' AND t.lease_until > clock_timestamp()
           UNION ALL
           SELECT FROM myria.build_parts p WHERE p.tenant_id = $1 AND p.build_id = b.build_id
           AND p.status <> 'done' AND p.lease_until > clock_timestamp()))
ORDER BY b.finished_at IS NULL DESC LIMIT 1;

-- name: open_page
-- The next events that still have words.
SELECT x.event_seq, x.scope_id, e.event_id, e.payload::text AS payload, e.topic_hints::text AS topic_hints, e.channel, e.type,
       e.context_id, e.source_event_key, e.dedupe_key
FROM myria.erased x
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = x.event_seq
WHERE x.tenant_id = $1 AND x.erasure_id = $2 AND x.erased_at IS NULL AND x.event_seq > $3
ORDER BY x.event_seq LIMIT $4;

-- name: keep_words
INSERT INTO myria.erased_words (tenant_id, erasure_id, digest, sieve)
SELECT $1, $2, w.digest, w.sieve FROM unnest($3::bytea[], $4::integer[]) AS w (digest, sieve) ON CONFLICT DO NOTHING;

-- name: words
SELECT digest, sieve FROM myria.erased_words WHERE tenant_id = $1 AND erasure_id = $2;

-- name: word_digests
-- Of each word what a receipt fixes: the digest, and the sieve where it has one.
SELECT CASE WHEN sieve IS NULL THEN digest ELSE digest || int4send(sieve) END
FROM myria.erased_words WHERE tenant_id = $1 AND erasure_id = $2 ORDER BY digest;

-- name: drop_words
DELETE FROM myria.erased_words WHERE tenant_id = $1 AND erasure_id = $2 AND digest = ANY ($3::bytea[]);

-- name: refuse_keys
INSERT INTO myria.refused_keys (tenant_id, key)
SELECT $1, sha256(s.secret || k) FROM unnest($2::bytea[]) AS k, myria.erasure_secrets s WHERE s.tenant_id = $1
ON CONFLICT DO NOTHING;

-- name: refused
-- Those of some dedupe keys whose events were erased.
SELECT unnest(myria.refused_among($1, $2)) AS dedupe_key;

-- name: admit
DELETE FROM myria.refused_keys r USING myria.erasure_secrets s, unnest($2::bytea[]) AS k
WHERE r.tenant_id = $1 AND s.tenant_id = $1 AND r.key = sha256(s.secret || k);

-- name: forget_successors
-- A withdrawal may name what replaced an event by its dedupe key, and its own key is made of that: both go, the id stays.
UPDATE myria.events w
SET payload = w.payload - 'superseded_by_key' || jsonb_build_object('superseded_by', e.event_id),
    source_event_key = NULL, dedupe_key = NULL
FROM myria.withdrawn x
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = x.superseded_by
WHERE x.tenant_id = $1 AND x.superseded_by = ANY ($2::bigint[])
  AND w.tenant_id = $1 AND w.event_seq = x.by_event_seq AND w.payload ? 'superseded_by_key';

-- name: forget_reasons
-- Why reviewers decided as they did about some events: that may quote them.
UPDATE myria.events w SET payload = w.payload #- '{review,why}'
FROM myria.withdrawn x
WHERE x.tenant_id = $1 AND x.event_seq = ANY ($2::bigint[]) AND x.reason IN ('held', 'refused', 'restored')
  AND w.tenant_id = $1 AND w.event_seq = x.by_event_seq AND w.payload->'review' ? 'why';

-- name: forget_digests
-- Digests of some events in events that stay.
SELECT myria.forget_digests($1, $2);

-- name: places
-- The tables that erasing changes.
SELECT unnest(myria.erased_places()) AS place;

-- name: sample_anew
-- PostgreSQL's statistics of a table, without what is gone.
SELECT myria.sample_anew($1);

-- name: sessions_of
-- The sessions that some events may be part of.
SELECT DISTINCT e.scope_id, e.context_id
FROM myria.events e
JOIN myria.sessions x ON x.tenant_id = $1 AND x.scope_id = e.scope_id AND x.context_id = e.context_id
WHERE e.tenant_id = $1 AND e.event_seq = ANY ($2::bigint[]);

-- name: drop_session
DELETE FROM myria.sessions WHERE tenant_id = $1 AND scope_id = $2 AND context_id = $3;

-- name: fold_session
INSERT INTO myria.sessions SELECT g.* FROM myria.sessions_of_log g
WHERE g.tenant_id = $1 AND g.scope_id = $2 AND g.context_id = $3;

-- name: turns_of
-- The sessions of turns of which some events are marks.
SELECT DISTINCT t.owner, t.context_id, t.scope_id FROM myria.turns t WHERE t.tenant_id = $1 AND t.event_seq = ANY ($2::bigint[]);

-- name: erase_turns
-- With the turns that wait for a model, and all comparisons of their sessions.
WITH due AS (
    DELETE FROM myria.turn_extractions_due d USING myria.turns t
    WHERE t.tenant_id = $1 AND t.event_seq = ANY ($2::bigint[])
      AND d.tenant_id = $1 AND d.owner = t.owner AND d.context_id = t.context_id AND d.turn_id = t.turn_id
), shadows AS (
    DELETE FROM myria.turn_shadows s USING myria.turns t
    WHERE t.tenant_id = $1 AND t.event_seq = ANY ($2::bigint[])
      AND s.tenant_id = $1 AND s.owner = t.owner AND s.context_id = t.context_id
)
DELETE FROM myria.turns WHERE tenant_id = $1 AND event_seq = ANY ($2::bigint[]);

-- name: drop_turn_session
DELETE FROM myria.turn_sessions WHERE tenant_id = $1 AND owner = $2 AND context_id = $3 AND scope_id = $4;

-- name: fold_turn_session
INSERT INTO myria.turn_sessions (tenant_id, owner, context_id, scope_id, first_seq, last_seq, turns, items)
SELECT t.tenant_id, t.owner, t.context_id, t.scope_id, min(t.event_seq), max(t.event_seq), count(*), sum(cardinality(t.items))
FROM myria.turns t
WHERE t.tenant_id = $1 AND t.owner = $2 AND t.context_id = $3 AND t.scope_id = $4
GROUP BY t.tenant_id, t.owner, t.context_id, t.scope_id;

-- name: erase_notes
-- Notes whose current version is among some events, with all that is kept about them. What sessions were shown goes
-- altogether: it is kept for convenience alone.
WITH shown AS (
    DELETE FROM myria.notes_shown s WHERE s.tenant_id = $1
), gone AS (
    DELETE FROM myria.notes n WHERE n.tenant_id = $1 AND n.event_seq = ANY ($2::bigint[]) RETURNING n.note_id
), looks AS (
    DELETE FROM myria.note_looks k USING gone WHERE k.tenant_id = $1 AND k.note_id = gone.note_id
), ratings AS (
    DELETE FROM myria.note_evaluations v USING gone WHERE v.tenant_id = $1 AND v.note_id = gone.note_id
), due AS (
    DELETE FROM myria.note_evaluations_due d USING gone WHERE d.tenant_id = $1 AND d.note_id = gone.note_id
), uses AS (
    DELETE FROM myria.note_usage u USING gone WHERE u.tenant_id = $1 AND u.note_id = gone.note_id
)
SELECT count(*) FROM gone;

-- name: erase_relations
WITH older AS (
    UPDATE myria.note_relations SET replaces_seq = NULL
    WHERE tenant_id = $1 AND replaces_seq = ANY ($2::bigint[]) AND event_seq <> ALL ($2::bigint[])
)
DELETE FROM myria.note_relations WHERE tenant_id = $1 AND event_seq = ANY ($2::bigint[]);

-- name: erase_feedback
DELETE FROM myria.tool_feedback WHERE tenant_id = $1 AND event_seq = ANY ($2::bigint[]);

-- name: drop_registrations
-- Agents and sessions of which a version that counts is among some events.
DELETE FROM myria.registrations r
WHERE r.tenant_id = $1 AND (r.event_seq = ANY ($2::bigint[]) OR r.first_seq = ANY ($2::bigint[]))
RETURNING r.kind, r.id;

-- name: fold_registrations
-- What is left of them in the log.
INSERT INTO myria.registrations (tenant_id, kind, id, scope_id, event_seq, first_seq, version, name, agent_id, status,
                                 created_at, updated_at)
SELECT g.tenant_id, g.kind, g.id, g.scope_id, g.event_seq, g.first_seq, g.version, g.name, g.agent_id, g.status,
       g.created_at, g.updated_at
FROM unnest($2::text[], $3::text[]) AS dropped (kind, id)
JOIN myria.registrations_of_log g ON g.tenant_id = $1 AND g.kind = dropped.kind AND g.id = dropped.id;

-- name: erase_vectors
-- With the vectors of texts that no other event has.
WITH gone AS (
    DELETE FROM myria.event_vectors v WHERE v.tenant_id = $1 AND v.event_seq = ANY ($2::bigint[])
    RETURNING v.model, v.digest
), texts AS (
    DELETE FROM myria.text_vectors t USING (SELECT DISTINCT model, digest FROM gone WHERE digest IS NOT NULL) g
    WHERE t.tenant_id = $1 AND t.model = g.model AND t.digest = g.digest
      AND NOT EXISTS (SELECT FROM myria.event_vectors o
                      WHERE o.tenant_id = $1 AND o.model = g.model AND o.digest = g.digest AND o.event_seq <> ALL ($2::bigint[]))
)
SELECT count(*) FROM gone;

-- name: erase_events
UPDATE myria.events
SET payload = '{}', topic_hints = '[]', source_event_key = NULL, dedupe_key = NULL, type = NULL, context_id = NULL,
    channel = 'erased'
WHERE tenant_id = $1 AND event_seq = ANY ($2::bigint[]);

-- name: note_erased
UPDATE myria.erased SET erased_at = clock_timestamp() WHERE tenant_id = $1 AND event_seq = ANY ($2::bigint[]);

-- name: list_renderings
-- The renderings of some scopes that cover an event of an erasure: its leaf in every tree, and all above it.
WITH RECURSIVE below AS MATERIALIZED (
    SELECT r.rendering_id AS parent, child
    FROM myria.renderings r CROSS JOIN LATERAL unnest(r.children) AS child
    WHERE r.tenant_id = $1 AND r.scope_id = ANY ($3::bigint[])
), gone AS MATERIALIZED (
    SELECT DISTINCT n.node_id
    FROM myria.nodes n CROSS JOIN LATERAL unnest(n.event_seqs) AS seq
    JOIN myria.erased x ON x.tenant_id = $1 AND x.event_seq = seq AND x.erasure_id = $2
    WHERE n.tenant_id = $1 AND n.scope_id = ANY ($3::bigint[])
), hit AS (
    SELECT r.rendering_id
    FROM gone JOIN myria.renderings r ON r.tenant_id = $1 AND r.node_id = gone.node_id
    UNION
    SELECT b.parent FROM hit h JOIN below b ON b.child = h.rendering_id
)
INSERT INTO myria.erased_renderings (tenant_id, rendering_id, erasure_id)
SELECT $1, h.rendering_id, $2 FROM hit h
ON CONFLICT DO NOTHING;

-- name: open_renderings
SELECT x.rendering_id,
       EXISTS (SELECT FROM myria.search_blocks b WHERE b.tenant_id = $1 AND b.rendering_id = x.rendering_id) AS has_block
FROM myria.erased_renderings x
WHERE x.tenant_id = $1 AND x.erasure_id = $2 AND x.erased_at IS NULL ORDER BY x.rendering_id LIMIT $3;

-- name: renderings
SELECT rendering_id FROM myria.erased_renderings WHERE tenant_id = $1 AND erasure_id = $2 ORDER BY rendering_id;

-- name: erase_renderings
-- All lists of its metadata hold words of events.
UPDATE myria.renderings
SET label = $3, summary = $4, metadata = coalesce((
    SELECT jsonb_object_agg(key, CASE jsonb_typeof(value) WHEN 'array' THEN '[]' ELSE value END)
    FROM jsonb_each(metadata)
), '{}')
WHERE tenant_id = $1 AND rendering_id = ANY ($2::bytea[]);

-- name: note_renderings
UPDATE myria.erased_renderings SET erased_at = clock_timestamp() WHERE tenant_id = $1 AND rendering_id = ANY ($2::bytea[]);

-- name: blocks
SELECT rendering_id, analyzer_version, block FROM myria.search_blocks WHERE tenant_id = $1 AND rendering_id = ANY ($2::bytea[]);

-- name: rewrite_block
UPDATE myria.search_blocks SET block = $4 WHERE tenant_id = $1 AND rendering_id = $2 AND analyzer_version = $3;

-- name: drop_block
DELETE FROM myria.search_blocks WHERE tenant_id = $1 AND rendering_id = $2 AND analyzer_version = $3;

-- name: erased_among
SELECT x.event_seq FROM myria.erased x WHERE x.tenant_id = $1 AND x.event_seq = ANY ($2::bigint[]);

-- name: erase_plans
-- Stored plans of a model that name an event of an erasure. At most $4 at once.
DELETE FROM myria.unit_plans p
WHERE p.tenant_id = $1 AND (p.scope_id, p.unit, p.planner) IN (
    SELECT o.scope_id, o.unit, o.planner FROM myria.unit_plans o
    WHERE o.tenant_id = $1 AND o.scope_id = ANY ($3::bigint[])
      AND EXISTS (SELECT FROM regexp_matches(o.plan::text, 'evt_[0-9a-f]{32}', 'g') AS named (ids)
                  JOIN myria.events e ON e.tenant_id = $1 AND e.event_id = named.ids[1]
                  JOIN myria.erased x ON x.tenant_id = $1 AND x.event_seq = e.event_seq AND x.erasure_id = $2)
    LIMIT $4);

-- name: erase_calls
-- What models were asked and answered that could see one of some scopes: its numbers stay. At most $3 at once.
UPDATE myria.llm_calls c
SET prompt = NULL, prompt_sha256 = NULL, reply = NULL, reply_sha256 = NULL, tools = '[]', message = NULL
WHERE c.tenant_id = $1 AND c.call_id IN (
    SELECT o.call_id FROM myria.llm_calls o
    WHERE o.tenant_id = $1 AND (o.mask_scopes && $2::bigint[] OR o.scope_id = ANY ($2::bigint[]))
      AND (o.prompt IS NOT NULL OR o.prompt_sha256 IS NOT NULL OR o.reply IS NOT NULL OR o.reply_sha256 IS NOT NULL
           OR o.tools <> '[]' OR o.message IS NOT NULL)
    LIMIT $3);

-- name: remarks
-- What people and programs wrote beside the log, which may quote it.
SELECT 'builds' AS place, build_id AS key, concat_ws(' ', reason, error::text) AS text FROM myria.builds WHERE tenant_id = $1
UNION ALL
SELECT 'build_tasks', build_id || ' ' || scope_id, concat_ws(' ', error::text, degraded_reason) FROM myria.build_tasks
WHERE tenant_id = $1 AND (error IS NOT NULL OR degraded_reason IS NOT NULL)
UNION ALL
SELECT 'build_units', build_id || ' ' || scope_id, reason FROM myria.build_units WHERE tenant_id = $1 AND reason IS NOT NULL
UNION ALL
SELECT 'snapshots', snapshot_id, violations::text FROM myria.snapshots WHERE tenant_id = $1 AND violations <> '[]'
UNION ALL
SELECT 'rebuild_requests', request_id, concat_ws(' ', reason, cause_key) FROM myria.rebuild_requests WHERE tenant_id = $1
UNION ALL
SELECT 'pointer_moves', move_id::text, reason FROM myria.pointer_moves WHERE tenant_id = $1 AND reason IS NOT NULL
UNION ALL
SELECT 'tenants', tenant_id, concat_ws(' ', auto_paused_reason, suspended_reason, waits::text) FROM myria.tenants WHERE tenant_id = $1
UNION ALL
SELECT 'access_log', entry_id::text, concat_ws(' ', target, details::text) FROM myria.access_log WHERE tenant_id = $1
UNION ALL
SELECT 'call_log', entry_id::text, context_id FROM myria.call_log WHERE tenant_id = $1 AND context_id IS NOT NULL
UNION ALL
SELECT 'erasures', erasure_id, reason FROM myria.erasures WHERE tenant_id = $1 AND state <> 'done';

-- name: erase_remarks_builds
UPDATE myria.builds SET reason = '[erased]', error = CASE WHEN error IS NOT NULL THEN '{"code": "erased", "message": "[erased]"}'::jsonb END
WHERE tenant_id = $1 AND build_id = ANY ($2::text[]);

-- name: erase_remarks_build_tasks
UPDATE myria.build_tasks SET error = CASE WHEN error IS NOT NULL THEN '{"code": "erased", "message": "[erased]", "failures": 0}'::jsonb END,
    degraded_reason = CASE WHEN degraded_reason IS NOT NULL THEN '[erased]' END
WHERE tenant_id = $1 AND build_id || ' ' || scope_id = ANY ($2::text[]);

-- name: erase_remarks_build_units
UPDATE myria.build_units SET reason = '[erased]' WHERE tenant_id = $1 AND build_id || ' ' || scope_id = ANY ($2::text[]) AND reason IS NOT NULL;

-- name: erase_remarks_snapshots
UPDATE myria.snapshots SET violations = '[]' WHERE tenant_id = $1 AND snapshot_id = ANY ($2::text[]);

-- name: erase_remarks_rebuild_requests
UPDATE myria.rebuild_requests SET reason = '[erased]', cause_key = 'erased:' || request_id
WHERE tenant_id = $1 AND request_id = ANY ($2::text[]);

-- name: erase_remarks_pointer_moves
UPDATE myria.pointer_moves SET reason = '[erased]' WHERE tenant_id = $1 AND move_id = ANY ($2::text[]::bigint[]);

-- name: erase_remarks_tenants
UPDATE myria.tenants SET auto_paused_reason = CASE WHEN auto_paused_reason IS NOT NULL THEN '[erased]' END,
    suspended_reason = CASE WHEN suspended_reason IS NOT NULL THEN '[erased]' END, waits = '{}'
WHERE tenant_id = ANY ($2::text[]) AND tenant_id = $1;

-- name: erase_remarks_access_log
UPDATE myria.access_log SET target = CASE WHEN target IS NOT NULL THEN '[erased]' END, details = '{}'
WHERE tenant_id = $1 AND entry_id = ANY ($2::text[]::bigint[]);

-- name: erase_remarks_call_log
UPDATE myria.call_log SET context_id = NULL WHERE tenant_id = $1 AND entry_id = ANY ($2::text[]::bigint[]);

-- name: erase_remarks_erasures
UPDATE myria.erasures SET reason = '[erased]' WHERE tenant_id = $1 AND erasure_id = ANY ($2::text[]);

-- name: last_receipt
SELECT number, mac FROM myria.erasures WHERE tenant_id = $1 AND number IS NOT NULL ORDER BY number DESC LIMIT 1;

-- name: finish
UPDATE myria.erasures
SET state = 'done', number = $3, receipt = $4, mac = $5, finished_at = clock_timestamp(), counts = $6::jsonb
WHERE tenant_id = $1 AND erasure_id = $2;

-- name: handed_over
UPDATE myria.erasures SET receipt_key = NULL WHERE tenant_id = $1 AND erasure_id = $2 AND state = 'done';

-- name: receipt_holds
SELECT myria.receipt_holds($1, $2, $3, $4);

-- name: receipts
SELECT erasure_id, number, receipt, mac FROM myria.erasures WHERE tenant_id = $1 AND number IS NOT NULL ORDER BY number;

-- name: words_of_events
SELECT e.event_seq::text AS key, concat_ws(' ', e.payload::text, e.topic_hints::text, e.channel, e.type, e.context_id, e.source_event_key) AS text
FROM myria.events e WHERE e.tenant_id = $1;

-- name: words_of_renderings
SELECT encode(r.rendering_id, 'hex') AS key, concat_ws(' ', r.label, r.summary, r.metadata::text) AS text
FROM myria.renderings r WHERE r.tenant_id = $1;

-- name: words_of_blocks
SELECT encode(b.rendering_id, 'hex') AS key, b.block FROM myria.search_blocks b WHERE b.tenant_id = $1;

-- name: words_of_models
SELECT c.call_id AS key, concat_ws(' ', c.prompt, c.reply, c.tools::text, c.message) AS text FROM myria.llm_calls c WHERE c.tenant_id = $1
UNION ALL
SELECT encode(p.unit, 'hex'), p.plan::text FROM myria.unit_plans p WHERE p.tenant_id = $1;

-- name: words_of_notes
SELECT n.note_id AS key, concat_ws(' ', n.topic, n.context_id, n.kind, n.agent_id, n.event_type, array_to_string(n.tags, ' ')) AS text
FROM myria.notes n WHERE n.tenant_id = $1
UNION ALL
SELECT x.context_id, x.context_id FROM myria.sessions x WHERE x.tenant_id = $1
UNION ALL
SELECT l.from_id, l.relation FROM myria.note_relations l WHERE l.tenant_id = $1
UNION ALL
SELECT f.event_seq::text, f.tool FROM myria.tool_feedback f WHERE f.tenant_id = $1
UNION ALL
SELECT t.event_seq::text, concat_ws(' ', t.context_id, t.turn_id) FROM myria.turns t WHERE t.tenant_id = $1
UNION ALL
SELECT r.id, concat_ws(' ', r.name, r.status) FROM myria.registrations r WHERE r.tenant_id = $1;

-- name: words_left
-- Events of an erasure of which more than the tombstone is left.
SELECT e.event_id FROM myria.erased x JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = x.event_seq
WHERE x.tenant_id = $1 AND x.erasure_id = $2
  AND (x.erased_at IS NULL OR e.payload <> '{}' OR e.topic_hints <> '[]' OR e.source_event_key IS NOT NULL
       OR e.dedupe_key IS NOT NULL OR e.type IS NOT NULL OR e.context_id IS NOT NULL OR e.channel <> 'erased')
ORDER BY e.event_seq LIMIT 20;

-- name: now
SELECT clock_timestamp();

-- name: count
-- What an erasure takes, by place; renderings and blocks are counted as they go. The list was written in this transaction,
-- so PostgreSQL knows nothing of its size: its leaves are found by sorting, whose cost no plan can make quadratic.
SELECT count(*) AS events, count(*) FILTER (WHERE e.type = 'myria.note') AS versions_of_notes,
       count(DISTINCT x.scope_id) AS scopes,
       (SELECT count(DISTINCT m.node_id)
        FROM (SELECT u.node_id, bool_or(u.node_id IS NULL) OVER (PARTITION BY u.event_seq) AS is_taken
              FROM (SELECT n.node_id, seq AS event_seq
                    FROM myria.nodes n CROSS JOIN LATERAL unnest(n.event_seqs) AS seq
                    WHERE n.tenant_id = $1 AND n.scope_id = ANY (array_agg(DISTINCT x.scope_id))
                    UNION ALL
                    SELECT NULL, g.event_seq FROM myria.erased g WHERE g.tenant_id = $1 AND g.erasure_id = $2) AS u) AS m
        WHERE m.is_taken) AS leaves,
       (SELECT count(*) FROM myria.llm_calls c
        WHERE c.tenant_id = $1 AND c.mask_scopes && array_agg(DISTINCT x.scope_id)) AS llm_calls
FROM myria.erased x
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = x.event_seq
WHERE x.tenant_id = $1 AND x.erasure_id = $2;
