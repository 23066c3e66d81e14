-- What an append looks up of its tenant is a condition of the statement that inserts, and the functions that append count
-- the bytes themselves. The rows that a statement inserted are no longer kept for a trigger, which is what most of the
-- counting cost.
--
-- Old pods go on working. They call the functions that are made anew here; what else they insert is counted by triggers.

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
        set_config('myria.tenant_since', tenant_since, true),
        set_config('myria.admits', 'own', true), set_config('myria.tally', 'own', true));
    done := pg_advisory_xact_lock_shared(append_lock);
    -- The transaction has its number before it looks at the tenant (see refuse_while_deleted).
    done := pg_current_xact_id();
    IF key_locks <> '{}' THEN
        PERFORM FROM myria.standing_memories(
            tenant, key_locks::bigint[], keys::text[], since::timestamptz[], shared::text[]);
        IF FOUND THEN
            RAISE EXCEPTION 'a memory with this key stands already' USING ERRCODE = 'MYR03';
        END IF;
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
    ) i
    WHERE EXISTS (
        SELECT FROM myria.tenants t
        WHERE t.tenant_id = tenant AND t.deleting_at IS NULL AND t.created_at = tenant_since::timestamptz
          -- Events with keys come first.
          AND (NOT t.refuses_keys OR dedupe_keys[1] IS NULL OR myria.refused_among(tenant, dedupe_keys) = '{}')
    );
    IF NOT FOUND THEN
        PERFORM myria.refuse_append(tenant, tenant_since);
    END IF;
    IF cardinality(payloads) = 1 THEN
        done := myria.count_added(tenant, octet_length(payloads[1]::text));
    ELSE
        done := myria.count_added(tenant, (SELECT sum(octet_length(p::text)) FROM unnest(payloads) AS p));
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

CREATE OR REPLACE FUNCTION myria.append_alike_memories(
    tenant text, tenant_since text, append_lock bigint, lock_timeout text, transaction_timeout text,
    ids text, payloads jsonb[], note_ids text, digests text, memory_keys text, calls text, moments text,
    key_locks text, since text, shared text, scope bigint, hints jsonb,
    kind text, topic text, weight text, agent text, event_type text, tags text, importance text)
RETURNS bigint[]
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    notes CONSTANT text[] := note_ids;
    keys CONSTANT text[] := memory_keys;
    call_of CONSTANT int[] := calls;
    kept CONSTANT timestamptz[] := moments;
    begun CONSTANT timestamptz[] := since;
    given_weight CONSTANT real := weight;
    given_importance CONSTANT real := importance;
    given_tags CONSTANT text[] := tags;
    numbers bigint[];
    done text;
BEGIN
    done := concat(
        set_config('myria.tenant', tenant, true), set_config('lock_timeout', lock_timeout, true),
        CASE WHEN current_setting('server_version_num')::int >= 170000
             THEN set_config('transaction_timeout', transaction_timeout, true) END,
        set_config('plan_cache_mode', 'force_generic_plan', true),
        set_config('myria.tenant_since', tenant_since, true),
        set_config('myria.admits', 'own', true), set_config('myria.tally', 'own', true),
        set_config('myria.looks', CASE WHEN kind IN ('episodic', 'session', 'entity') THEN 'none' ELSE '' END, true));
    done := pg_advisory_xact_lock_shared(append_lock);
    done := pg_current_xact_id();
    IF key_locks <> '{}' THEN
        PERFORM pg_advisory_xact_lock(key) FROM unnest(key_locks::bigint[]) AS key;
        -- What others committed before they gave up the lock is seen: each statement has a snapshot of its own.
        PERFORM FROM myria.memories m
        WHERE m.tenant_id = tenant AND m.dedup_key = ANY (keys) AND m.created_at > begun[1] LIMIT 1;
        IF FOUND THEN
            PERFORM FROM myria.standing_memories(
                tenant, '{}', keys, ARRAY(SELECT begun[call] FROM unnest(call_of) AS call),
                array_fill(shared, ARRAY[cardinality(keys)]));
            IF FOUND THEN
                RAISE EXCEPTION 'a memory with this key stands already' USING ERRCODE = 'MYR03';
            END IF;
        END IF;
    END IF;
    -- The locks are held since the statements before: only then are numbers allocated.
    numbers := ARRAY(SELECT nextval('myria.event_seq') FROM generate_series(1, cardinality(payloads)));
    INSERT INTO myria.events (tenant_id, event_seq, event_id, scope_id, occurred_at, channel, type, internal, payload,
                              topic_hints)
    SELECT tenant, i.event_seq, i.event_id, scope, kept[i.call], 'notes', 'myria.note', false, i.payload, hints
    FROM (
        SELECT unnest(numbers) AS event_seq, unnest(ids::text[]) AS event_id, unnest(call_of) AS call,
               unnest(payloads) AS payload
    ) i
    WHERE EXISTS (
        SELECT FROM myria.tenants t
        WHERE t.tenant_id = tenant AND t.deleting_at IS NULL AND t.created_at = tenant_since::timestamptz
    );
    IF NOT FOUND THEN
        PERFORM myria.refuse_append(tenant, tenant_since);
    END IF;
    done := myria.count_added(tenant, (SELECT sum(octet_length(p::text)) FROM unnest(payloads) AS p));
    INSERT INTO myria.notes (tenant_id, note_id, scope_id, event_seq, first_seq, version, kind, topic, importance,
                             anchor, session, digest, created_at, changed_at, live)
    SELECT tenant, g.note_id, scope, g.event_seq, g.event_seq, 1, kind, topic, given_weight, false, false,
           decode(g.digest, 'hex'), kept[g.call], kept[g.call], true
    FROM (
        SELECT unnest(numbers) AS event_seq, unnest(call_of) AS call, unnest(notes) AS note_id,
               unnest(digests::text[]) AS digest
    ) g;
    done := set_config('myria.looks', '', true);
    INSERT INTO myria.memories (tenant_id, note_id, scope_id, event_seq, first_seq, created_at, agent_id,
                                memory_type, event_type, tags, importance, dedup_key)
    SELECT tenant, g.note_id, scope, g.event_seq, g.event_seq, kept[g.call], agent, kind, event_type, given_tags,
           given_importance, g.dedup_key
    FROM (
        SELECT unnest(numbers) AS event_seq, unnest(call_of) AS call, unnest(notes) AS note_id,
               unnest(keys) AS dedup_key
    ) g;
    RETURN numbers;
END $$;

DROP TRIGGER count_appended ON myria.events;
-- Adds up what rows bring, and counts it when the statement ends: were it counted for each row, PostgreSQL would look
-- through all versions of the tally that the transaction made before.
CREATE OR REPLACE FUNCTION myria.count_appended() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    counted CONSTANT text := current_setting('myria.counted_tenant', true);
    bytes bigint := nullif(current_setting('myria.counted_bytes', true), '');
    done text;
BEGIN
    IF bytes > 0 AND (TG_LEVEL = 'STATEMENT' OR counted <> NEW.tenant_id) THEN
        done := myria.count_stored(counted, bytes);
        bytes := 0;
        done := set_config('myria.counted_bytes', '0', true);
    END IF;
    IF TG_LEVEL = 'ROW' THEN
        done := set_config('myria.counted_tenant', NEW.tenant_id, true);
        done := set_config('myria.counted_bytes', (coalesce(bytes, 0) + octet_length(NEW.payload::text))::text, true);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER add_appended AFTER INSERT ON myria.events
    FOR EACH ROW WHEN (current_setting('myria.tally', true) IS DISTINCT FROM 'own')
    EXECUTE FUNCTION myria.count_appended();
CREATE TRIGGER count_appended AFTER INSERT ON myria.events
    FOR EACH STATEMENT WHEN (current_setting('myria.tally', true) IS DISTINCT FROM 'own')
    EXECUTE FUNCTION myria.count_appended();

-- The functions that append have looked at the tenant in the same transaction.
CREATE OR REPLACE TRIGGER refuse_while_deleted BEFORE INSERT ON myria.events
    FOR EACH STATEMENT WHEN (current_setting('myria.admits', true) IS DISTINCT FROM 'own')
    EXECUTE FUNCTION myria.refuse_while_deleted();
