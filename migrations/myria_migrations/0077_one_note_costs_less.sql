-- One note and its event, given as they are and not in arrays, as `append_one` takes one event; and its place in the queue
-- of maintenance is written beside it, where a trigger would collect the rows of the statement first.
--
-- Old pods go on working: they append by the functions that they know. Serving needs the right to insert into the queue for
-- the new one (roles.sql). Whoever appends counts what is added, and nobody else may any more.

CREATE FUNCTION myria.append_note(
    tenant text, tenant_since text, append_lock bigint, lock_timeout text, transaction_timeout text,
    event_id text, scope bigint, occurred_at timestamptz, channel text, type text, context_id text,
    source_event_key text, dedupe_key bytea, internal boolean, payload jsonb, topic_hints jsonb,
    note text, note_kind text, topic text, weight text, anchor boolean, digest text,
    asked bigint[], known text, most int, beginning int, further bytea[])
RETURNS TABLE (scope_id bigint, scope_key bytea, event_seqs bigint[], texts text[])
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    importance CONSTANT real := weight;
    number bigint;
    done text;
BEGIN
    number := myria.append_one(tenant, tenant_since, append_lock, lock_timeout, transaction_timeout, event_id, scope,
                               occurred_at, channel, type, context_id, source_event_key, dedupe_key, internal, payload,
                               topic_hints);
    event_seqs := ARRAY[number];
    RETURN NEXT;
    IF asked <> '{}' OR further <> '{}' THEN
        -- What scopes held before, as the statement notes.fold_new tells it.
        RETURN QUERY
        SELECT looked.scope_id, looked.scope_key, before.event_seqs, before.texts
        FROM (
            SELECT own AS scope_id, NULL::bytea AS scope_key FROM unnest(asked) AS own
            UNION ALL
            SELECT s.scope_id, s.scope_key FROM unnest(further) AS key
            CROSS JOIN LATERAL (
                SELECT x.scope_id, x.scope_key FROM myria.scopes x
                WHERE x.tenant_id = tenant AND x.scope_key = key OFFSET 0
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
    END IF;
    done := set_config('myria.looks', 'none', true);
    INSERT INTO myria.notes (tenant_id, note_id, scope_id, event_seq, first_seq, version, kind, topic, importance,
                             anchor, context_id, session, digest, created_at, changed_at, live)
    VALUES (tenant, note, scope, number, number, 1, note_kind, topic, importance, anchor, context_id, false,
            decode(digest, 'hex'), occurred_at, occurred_at, true);
    done := set_config('myria.looks', '', true);
    IF note_kind NOT IN ('episodic', 'session', 'entity') THEN
        INSERT INTO myria.note_looks AS k (tenant_id, note_id, scope_id, look_at, ends_at)
        VALUES (tenant, note, scope, occurred_at,
                myria.note_ends_at(note_kind, importance, anchor, occurred_at, NULL, NULL))
        ON CONFLICT (tenant_id, note_id) DO UPDATE SET
            look_at = EXCLUDED.look_at, ends_at = EXCLUDED.ends_at, phase = NULL, likeness = NULL;
    END IF;
END $$;
COMMENT ON FUNCTION myria.append_note IS 'As append_notes, of one event that is the first version of a note of no session.';

DO $$
DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['myria_server', 'myria_operator'] LOOP
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION myria.count_added TO %I', role);
        END IF;
    END LOOP;
END $$;
REVOKE EXECUTE ON FUNCTION myria.count_added FROM PUBLIC;
