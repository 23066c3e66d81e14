-- New events, memories that are kept over REST, notes of no session, and turns without facts are appended by one statement,
-- which is its own transaction: a client that stops holds no lock meanwhile.
--
-- Old pods go on working: they take the same locks in the same order, one statement after the other.

CREATE FUNCTION myria.append_new(
    tenant text, tenant_since text, append_lock bigint, lock_timeout text, transaction_timeout text,
    places text, ids text, scope_ids text, moments timestamptz[], channels text, types text, contexts text,
    source_keys text, dedupe_keys bytea[], internals text, payloads jsonb[], hints jsonb[],
    memory_places text DEFAULT NULL, memory_scopes text DEFAULT NULL, memory_ids text DEFAULT NULL,
    kinds text DEFAULT NULL, topics text DEFAULT NULL, weights text DEFAULT NULL, memory_contexts text DEFAULT NULL,
    digests text DEFAULT NULL, memory_moments text DEFAULT NULL, agents text DEFAULT NULL, event_types text DEFAULT NULL,
    tags text DEFAULT NULL, importances text DEFAULT NULL, memory_keys text DEFAULT NULL,
    key_locks text DEFAULT NULL, keys text DEFAULT NULL, since text DEFAULT NULL, shared text DEFAULT NULL)
RETURNS bigint[]
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    stored bigint;
    numbers bigint[];
BEGIN
    PERFORM set_config('myria.tenant', tenant, true), set_config('lock_timeout', lock_timeout, true),
            CASE WHEN current_setting('server_version_num')::int >= 170000
                 THEN set_config('transaction_timeout', transaction_timeout, true) END,
            set_config('plan_cache_mode', 'force_generic_plan', true),
            set_config('myria.tenant_since', tenant_since, true),
            pg_advisory_xact_lock_shared(append_lock);
    IF key_locks <> '{}' AND EXISTS (
        SELECT FROM myria.standing_memories(
            tenant, key_locks::bigint[], keys::text[], since::timestamptz[], shared::text[])
    ) THEN
        RAISE EXCEPTION 'a memory with this key stands already' USING ERRCODE = 'MYR03';
    END IF;
    -- The locks are held since the statements before: only then are numbers allocated.
    WITH allocated AS MATERIALIZED (
        SELECT place, nextval('myria.event_seq') AS event_seq
        FROM generate_series(1, cardinality(payloads)) AS place
    ), inserted AS (
        INSERT INTO myria.events (tenant_id, event_seq, event_id, scope_id, occurred_at, channel, type, context_id,
                                  source_event_key, dedupe_key, internal, payload, topic_hints)
        SELECT tenant, a.event_seq, i.event_id, i.scope_id, i.occurred_at, i.channel, i.type, i.context_id,
               i.source_event_key, i.dedupe_key, i.internal, i.payload, i.topic_hints
        FROM unnest(places::bigint[], ids::text[], scope_ids::bigint[], moments, channels::text[], types::text[],
                    contexts::text[], source_keys::text[], dedupe_keys, internals::boolean[], payloads, hints)
             WITH ORDINALITY AS i (place, event_id, scope_id, occurred_at, channel, type, context_id,
                                   source_event_key, dedupe_key, internal, payload, topic_hints, position)
        JOIN allocated a ON a.place = i.place
        WHERE i.dedupe_key IS NULL OR i.dedupe_key <> ALL ((SELECT myria.refused_among(tenant, dedupe_keys))::bytea[])
        ORDER BY i.position
        ON CONFLICT DO NOTHING
        RETURNING event_seq
    )
    SELECT (SELECT count(*) FROM inserted), (SELECT array_agg(event_seq ORDER BY place) FROM allocated)
    INTO stored, numbers;
    IF stored <> cardinality(payloads) THEN
        RAISE EXCEPTION 'an event stands already, or was erased' USING ERRCODE = 'MYR03';
    END IF;
    IF memory_places IS NULL THEN
        RETURN numbers;
    END IF;
    WITH given AS MATERIALIZED (
        SELECT numbers[place] AS event_seq, g.*
        FROM unnest(memory_places::int[], memory_scopes::bigint[], memory_ids::text[], kinds::text[], topics::text[],
                    weights::numeric[], memory_contexts::text[], digests::text[], memory_moments::timestamptz[],
                    agents::text[], event_types::text[], tags::text[], importances::numeric[], memory_keys::text[])
             AS g (place, scope_id, note_id, kind, topic, note_importance, context_id, digest, occurred_at,
                   agent_id, event_type, tags, importance, dedup_key)
    ), folded AS (
        INSERT INTO myria.notes (tenant_id, note_id, scope_id, event_seq, first_seq, version, kind, topic, importance,
                                 anchor, context_id, session, digest, created_at, changed_at, live, lasts_days)
        SELECT tenant, g.note_id, g.scope_id, g.event_seq, g.event_seq, 1, g.kind, g.topic, g.note_importance::real,
               false, g.context_id, false, decode(g.digest, 'hex'), g.occurred_at, g.occurred_at, true, NULL
        FROM given g
    )
    INSERT INTO myria.memories (tenant_id, note_id, scope_id, event_seq, first_seq, created_at, agent_id, context_id,
                                memory_type, event_type, tags, importance, dedup_key)
    SELECT tenant, g.note_id, g.scope_id, g.event_seq, g.event_seq, g.occurred_at, g.agent_id, g.context_id, g.kind,
           g.event_type, g.tags::text[], g.importance::real, g.dedup_key
    FROM given g;
    RETURN numbers;
END $$;
COMMENT ON FUNCTION myria.append_new IS 'Appends events that are new, with the rows of memories among them, and returns their numbers in the order of their places; refuses all (MYR03) where one stands already or was erased. For a transaction of its own: it names the tenant, bounds the waiting, and takes the lock that every append holds.';

CREATE FUNCTION myria.append_notes(
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
    SELECT tenant, g.note_id, g.scope_id, numbers[g.place], numbers[g.place], 1, g.kind, g.topic, g.importance::real,
           g.anchor, g.context_id, g.session, decode(g.digest, 'hex'), g.occurred_at, g.occurred_at, true, NULL
    FROM unnest(note_places::int[], note_ids::text[], note_scopes::bigint[], kinds::text[], topics::text[],
                weights::numeric[], anchors::boolean[], note_contexts::text[], sessions::boolean[], digests::text[],
                note_moments::timestamptz[])
        AS g (place, note_id, scope_id, kind, topic, importance, anchor, context_id, session, digest, occurred_at);
END $$;
COMMENT ON FUNCTION myria.append_notes IS 'As append_new, with the rows of notes among the events; returns the numbers in a row without a scope, and the newest notes that scopes held before.';

CREATE FUNCTION myria.append_turns(
    tenant text, tenant_since text, append_lock bigint, lock_timeout text, transaction_timeout text,
    places text, ids text, scope_ids text, moments timestamptz[], channels text, types text, contexts text,
    source_keys text, dedupe_keys bytea[], internals text, payloads jsonb[], hints jsonb[],
    mark_places int[], mark_scopes bigint[], session_locks bigint[], owners bytea[], mark_contexts text[],
    turn_ids text[], items text[], previous text[])
RETURNS bigint[]
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    numbers bigint[];
BEGIN
    PERFORM set_config('myria.tenant', tenant, true), set_config('lock_timeout', lock_timeout, true),
            set_config('plan_cache_mode', 'force_generic_plan', true), pg_advisory_xact_lock_shared(append_lock);
    PERFORM pg_advisory_xact_lock(key) FROM unnest(session_locks) AS key;
    IF EXISTS (
        SELECT FROM unnest(owners, mark_contexts, previous) AS asked (owner, context_id, previous)
        WHERE asked.previous IS DISTINCT FROM (
            SELECT e.event_id FROM myria.events e
            WHERE e.tenant_id = tenant AND e.event_seq = (
                SELECT max(n.last_seq) FROM myria.turn_sessions n
                WHERE n.tenant_id = tenant AND n.owner = asked.owner AND n.context_id = asked.context_id))
    ) THEN
        RAISE EXCEPTION 'another turn came before' USING ERRCODE = 'MYR03';
    END IF;
    numbers := myria.append_new(tenant, tenant_since, append_lock, lock_timeout, transaction_timeout, places, ids,
                                scope_ids, moments, channels, types, contexts, source_keys, dedupe_keys, internals,
                                payloads, hints);
    -- What the statement turns.fold makes of marks that are new: a turn that is stored already is refused by its key.
    WITH stored AS (
        INSERT INTO myria.turns (tenant_id, owner, context_id, turn_id, scope_id, event_seq, items)
        SELECT tenant, m.owner, m.context_id, m.turn_id, m.scope_id, numbers[m.place], m.items::text[]
        FROM unnest(mark_places, mark_scopes, owners, mark_contexts, turn_ids, items)
             AS m (place, scope_id, owner, context_id, turn_id, items)
        RETURNING *
    )
    INSERT INTO myria.turn_sessions AS s (tenant_id, owner, context_id, scope_id, first_seq, last_seq, turns, items)
    SELECT n.tenant_id, n.owner, n.context_id, n.scope_id, n.event_seq, n.event_seq, 1, cardinality(n.items)
    FROM stored n
    ORDER BY n.owner, n.context_id, n.scope_id
    ON CONFLICT (tenant_id, owner, context_id, scope_id) DO UPDATE SET
        first_seq = least(s.first_seq, EXCLUDED.first_seq), last_seq = greatest(s.last_seq, EXCLUDED.last_seq),
        turns = s.turns + EXCLUDED.turns, items = s.items + EXCLUDED.items;
    RETURN numbers;
END $$;
COMMENT ON FUNCTION myria.append_turns IS 'As append_new, with what is folded of marks of turns among the events; refuses all where a turn is stored already, or follows another than its caller saw (MYR03).';
