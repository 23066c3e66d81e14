-- Notes that are written with their events: who appended those has looked at the tenant in the same transaction, and arrays
-- are read side by side as `SELECT unnest(…), unnest(…)`, as those of events are.
--
-- Old pods go on working: they look as before, or call the functions that look.

CREATE OR REPLACE TRIGGER refuse_while_deleted BEFORE INSERT ON myria.notes
    FOR EACH STATEMENT WHEN (current_setting('myria.admits', true) IS DISTINCT FROM 'own')
    EXECUTE FUNCTION myria.refuse_while_deleted();

CREATE OR REPLACE FUNCTION myria.append_notes(
    tenant text, tenant_since text, append_lock bigint, lock_timeout text, transaction_timeout text,
    places text, ids text, scope_ids text, moments timestamptz[], channels text, types text, contexts text,
    source_keys text, dedupe_keys bytea[], internals text, payloads jsonb[], hints jsonb[],
    note_places text, note_ids text, note_scopes text, kinds text, topics text, weights text, anchors text,
    note_contexts text, sessions text, digests text, note_moments text,
    asked bigint[], known text, most int, beginning int, further bytea[])
RETURNS TABLE (scope_id bigint, scope_key bytea, event_seqs bigint[], texts text[])
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    numbers bigint[];
BEGIN
    numbers := myria.append_new(tenant, tenant_since, append_lock, lock_timeout, transaction_timeout, places, ids,
                                scope_ids, moments, channels, types, contexts, source_keys, dedupe_keys, internals,
                                payloads, hints);
    RETURN QUERY SELECT NULL::bigint, NULL::bytea, numbers, NULL::text[];
    -- What scopes held before, as the statement notes.fold_new tells it.
    RETURN QUERY
    SELECT looked.scope_id, looked.scope_key, before.event_seqs, before.texts
    FROM (
        SELECT own AS scope_id, NULL::bytea AS scope_key FROM unnest(asked) AS own
        UNION ALL
        SELECT s.scope_id, s.scope_key FROM unnest(further) AS key
        CROSS JOIN LATERAL (
            SELECT x.scope_id, x.scope_key FROM myria.scopes x WHERE x.tenant_id = tenant AND x.scope_key = key OFFSET 0
        ) s
    ) looked
    CROSS JOIN LATERAL (
        SELECT array_agg(k.event_seq) AS event_seqs,
               array_agg(CASE WHEN k.event_seq <> ALL (known::bigint[]) THEN (
                   SELECT jsonb_build_array(coalesce(left(e.payload->>'text', beginning), ''),
                                            e.payload->'note'->'keywords')::text
                   FROM myria.events e WHERE e.tenant_id = tenant AND e.event_seq = k.event_seq) END) AS texts
        FROM (
            SELECT m.event_seq FROM myria.notes m
            WHERE m.tenant_id = tenant AND m.scope_id = looked.scope_id AND m.live AND NOT m.session
            ORDER BY m.event_seq DESC LIMIT most
        ) k
    ) before;
    INSERT INTO myria.notes (tenant_id, note_id, scope_id, event_seq, first_seq, version, kind, topic, importance,
                             anchor, context_id, session, digest, created_at, changed_at, live, lasts_days)
    SELECT tenant, g.note_id, g.scope_id, numbers[g.place], numbers[g.place], 1, g.kind, g.topic, g.importance,
           g.anchor, g.context_id, g.session, decode(g.digest, 'hex'), g.occurred_at, g.occurred_at, true, NULL
    FROM (
        SELECT unnest(note_places::int[]) AS place, unnest(note_ids::text[]) AS note_id,
               unnest(note_scopes::bigint[]) AS scope_id, unnest(kinds::text[]) AS kind, unnest(topics::text[]) AS topic,
               unnest(weights::real[]) AS importance, unnest(anchors::boolean[]) AS anchor,
               unnest(note_contexts::text[]) AS context_id, unnest(sessions::boolean[]) AS session,
               unnest(digests::text[]) AS digest, unnest(note_moments::timestamptz[]) AS occurred_at
    ) g;
END $$;
