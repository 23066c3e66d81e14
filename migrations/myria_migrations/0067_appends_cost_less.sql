-- Appends in one round trip cost less: numbers are allocated by a statement of their own, no row is looked up before it is
-- inserted (an index refuses what stands already), arrays are read side by side as `SELECT unnest(…), unnest(…)` (in FROM
-- each would be put into a store of its own first), and the bytes that are appended are counted by one statement.
--
-- Old pods go on working, and cost less, too: they call append_new as before. Its parameters from memory_places on are
-- theirs alone.

CREATE OR REPLACE FUNCTION myria.count_appended() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    named CONSTANT text := current_setting('myria.tenant', true);
BEGIN
    IF named <> '' AND named <> '*' THEN
        -- Row-level security lets in what is of the tenant that is named, and nothing else.
        INSERT INTO myria.stored_sizes AS s (tenant_id, part, payload_bytes)
        SELECT named, pg_backend_pid() % 16, sum(octet_length(a.payload::text)) FROM appended a HAVING count(*) > 0
        ON CONFLICT (tenant_id, part) DO UPDATE SET payload_bytes = s.payload_bytes + EXCLUDED.payload_bytes;
    ELSE
        PERFORM myria.count_stored(a.tenant_id, sum(octet_length(a.payload::text)))
        FROM appended a GROUP BY a.tenant_id;
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION myria.append_new(
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
    numbers bigint[];
    done text;
BEGIN
    done := concat(
        set_config('myria.tenant', tenant, true), set_config('lock_timeout', lock_timeout, true),
        CASE WHEN current_setting('server_version_num')::int >= 170000
             THEN set_config('transaction_timeout', transaction_timeout, true) END,
        set_config('plan_cache_mode', 'force_generic_plan', true),
        set_config('myria.tenant_since', tenant_since, true));
    done := pg_advisory_xact_lock_shared(append_lock);
    IF key_locks <> '{}' THEN
        PERFORM FROM myria.standing_memories(
            tenant, key_locks::bigint[], keys::text[], since::timestamptz[], shared::text[]);
        IF FOUND THEN
            RAISE EXCEPTION 'a memory with this key stands already' USING ERRCODE = 'MYR03';
        END IF;
    END IF;
    -- Events with keys come first.
    IF dedupe_keys[1] IS NOT NULL AND myria.refused_among(tenant, dedupe_keys) <> '{}' THEN
        RAISE EXCEPTION 'an event was erased' USING ERRCODE = 'MYR03';
    END IF;
    -- The locks are held since the statements before: only then are numbers allocated.
    IF cardinality(payloads) = 1 THEN
        numbers := ARRAY[nextval('myria.event_seq')];
    ELSE
        numbers := ARRAY(SELECT nextval('myria.event_seq') FROM generate_series(1, cardinality(payloads)));
    END IF;
    -- In the order in which they are given, that of their keys: so two appends never wait for each other.
    INSERT INTO myria.events (tenant_id, event_seq, event_id, scope_id, occurred_at, channel, type, context_id,
                              source_event_key, dedupe_key, internal, payload, topic_hints)
    SELECT tenant, numbers[i.place], i.event_id, i.scope_id, i.occurred_at, i.channel, i.type, i.context_id,
           i.source_event_key, i.dedupe_key, i.internal, i.payload, i.topic_hints
    FROM (
        SELECT unnest(places::int[]) AS place, unnest(ids::text[]) AS event_id, unnest(scope_ids::bigint[]) AS scope_id,
               unnest(moments) AS occurred_at, unnest(channels::text[]) AS channel, unnest(types::text[]) AS type,
               unnest(contexts::text[]) AS context_id, unnest(source_keys::text[]) AS source_event_key,
               unnest(dedupe_keys) AS dedupe_key, unnest(internals::boolean[]) AS internal, unnest(payloads) AS payload,
               unnest(hints) AS topic_hints
    ) i;
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
COMMENT ON FUNCTION myria.append_new IS 'Appends events that are new, and returns their numbers in the order of their places; refuses all where one stands already (a unique index) or was erased (MYR03). For a transaction of its own: it names the tenant, bounds the waiting, and takes the lock that every append holds.';

CREATE FUNCTION myria.append_memories(
    tenant text, tenant_since text, append_lock bigint, lock_timeout text, transaction_timeout text,
    places text, ids text, scope_ids text, moments timestamptz[], channels text, types text, contexts text,
    source_keys text, dedupe_keys bytea[], internals text, payloads jsonb[], hints jsonb[],
    event_rows text, note_ids text, kinds text, topics text, weights text, memory_contexts text, digests text,
    agents text, event_types text, tags text, importances text, memory_keys text,
    key_locks text, keys text, since text, shared text)
RETURNS bigint[]
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    numbers bigint[];
    own bigint[];
    scopes bigint[] := scope_ids;
    kept timestamptz[] := moments;
    done text;
BEGIN
    done := concat(
        set_config('myria.tenant', tenant, true), set_config('lock_timeout', lock_timeout, true),
        set_config('plan_cache_mode', 'force_generic_plan', true));
    done := pg_advisory_xact_lock_shared(append_lock);
    IF key_locks <> '{}' THEN
        PERFORM FROM myria.standing_memories(
            tenant, key_locks::bigint[], keys::text[], since::timestamptz[], shared::text[]);
        IF FOUND THEN
            RAISE EXCEPTION 'a memory with this key stands already' USING ERRCODE = 'MYR03';
        END IF;
    END IF;
    numbers := myria.append_new(tenant, tenant_since, append_lock, lock_timeout, transaction_timeout, places, ids,
                                scope_ids, moments, channels, types, contexts, source_keys, dedupe_keys, internals,
                                payloads, hints);
    IF event_rows IS NULL THEN
        own := numbers;
    ELSE
        SELECT array_agg(numbers[(places::int[])[row]] ORDER BY n), array_agg(scopes[row] ORDER BY n),
               array_agg(moments[row] ORDER BY n)
        INTO own, scopes, kept
        FROM unnest(event_rows::int[]) WITH ORDINALITY AS r (row, n);
    END IF;
    INSERT INTO myria.notes (tenant_id, note_id, scope_id, event_seq, first_seq, version, kind, topic, importance,
                             anchor, context_id, session, digest, created_at, changed_at, live, lasts_days)
    SELECT tenant, g.note_id, g.scope_id, g.event_seq, g.event_seq, 1, g.kind, g.topic, g.importance, false,
           g.context_id, false, decode(g.digest, 'hex'), g.kept_at, g.kept_at, true, NULL
    FROM (
        SELECT unnest(own) AS event_seq, unnest(scopes) AS scope_id, unnest(kept) AS kept_at,
               unnest(note_ids::text[]) AS note_id, unnest(kinds::text[]) AS kind, unnest(topics::text[]) AS topic,
               unnest(weights::real[]) AS importance, unnest(memory_contexts::text[]) AS context_id,
               unnest(digests::text[]) AS digest
    ) g;
    INSERT INTO myria.memories (tenant_id, note_id, scope_id, event_seq, first_seq, created_at, agent_id, context_id,
                                memory_type, event_type, tags, importance, dedup_key)
    SELECT tenant, g.note_id, g.scope_id, g.event_seq, g.event_seq, g.kept_at, g.agent_id, g.context_id, g.kind,
           g.event_type, g.tags::text[], g.importance, g.dedup_key
    FROM (
        SELECT unnest(own) AS event_seq, unnest(scopes) AS scope_id, unnest(kept) AS kept_at,
               unnest(note_ids::text[]) AS note_id, unnest(kinds::text[]) AS kind,
               unnest(memory_contexts::text[]) AS context_id, unnest(agents::text[]) AS agent_id,
               unnest(event_types::text[]) AS event_type, unnest(tags::text[]) AS tags,
               unnest(importances::real[]) AS importance, unnest(memory_keys::text[]) AS dedup_key
    ) g;
    RETURN numbers;
END $$;
COMMENT ON FUNCTION myria.append_memories IS 'As append_new, with the rows of memories among the events: each names its event by its row in the arrays of events; without rows each event is one, in its order. Refuses all, too, where one with the same key stands already (MYR03).';
