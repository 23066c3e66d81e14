-- Appends in one statement, which is its own transaction: a client that stops holds no lock meanwhile.
--
-- Each function names the tenant and bounds the waiting, then takes the lock that every append shares and a build's capture
-- takes alone, and only then allocates numbers: so no event below a build's cutoff is still to be committed. Nothing is
-- looked up before it is inserted: a unique index refuses what stands already, and the caller then appends step by step.
--
-- Triggers check the tenant and count bytes for every other writer. myria.admits and myria.tally = own tell them that these
-- functions do it themselves, because PostgreSQL would keep the inserted rows for them. Assigning to `done` instead of
-- PERFORM evaluates an expression without a query.

CREATE OR REPLACE FUNCTION myria.refuse_append(tenant text, tenant_since text) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    since timestamptz;
    is_deleted boolean;
BEGIN
    SELECT t.created_at, t.deleting_at IS NOT NULL INTO since, is_deleted
    FROM myria.tenants t WHERE t.tenant_id = tenant;
    IF is_deleted THEN
        RAISE EXCEPTION 'the tenant is being deleted' USING ERRCODE = 'MYR01';
    END IF;
    IF since IS DISTINCT FROM tenant_since::timestamptz THEN
        RAISE EXCEPTION 'the tenant is not the one whose scopes were remembered' USING ERRCODE = 'MYR02';
    END IF;
    RAISE EXCEPTION 'an event was erased' USING ERRCODE = 'MYR03';
END $$;
COMMENT ON FUNCTION myria.refuse_append IS 'Says why an append of new events inserted none: its tenant is being deleted (MYR01), or is another one by now (MYR02), or one of the events was erased (MYR03).';

CREATE OR REPLACE FUNCTION myria.standing_memories(
    tenant text, locks bigint[], keys text[], since timestamptz[], shared text[])
RETURNS TABLE (place bigint, event_id text, source_event_key text)
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(key) FROM unnest(locks) AS key;
    -- What others committed before they gave up the lock is seen: each statement has a snapshot of its own.
    IF NOT EXISTS (
        SELECT FROM unnest(keys, since) AS asked (key, since)
        CROSS JOIN LATERAL (
            SELECT FROM myria.memories m
            WHERE m.tenant_id = tenant AND m.dedup_key = asked.key AND m.created_at > asked.since LIMIT 1
        ) any_at_all
    ) THEN
        RETURN; -- nearly always, and at a fraction of the cost
    END IF;
    RETURN QUERY
    SELECT asked.position, found.event_id, found.source_event_key
    FROM unnest(keys, since, shared) WITH ORDINALITY AS asked (key, since, shared, position)
    CROSS JOIN LATERAL (
        SELECT e.event_id, e.source_event_key
        FROM myria.memories m
        JOIN myria.notes n ON n.tenant_id = tenant AND n.note_id = m.note_id AND n.live
        JOIN myria.scopes s ON s.tenant_id = tenant AND s.scope_id = m.scope_id AND asked.shared = ANY (s.participants)
        CROSS JOIN LATERAL (
            SELECT x.event_id, x.source_event_key FROM myria.events x
            WHERE x.tenant_id = tenant AND x.event_seq = m.first_seq OFFSET 0
        ) e
        WHERE m.tenant_id = tenant AND m.dedup_key = asked.key AND m.created_at > asked.since
        ORDER BY m.created_at DESC LIMIT 1
    ) found;
END $$;
COMMENT ON FUNCTION myria.standing_memories IS 'Locks the keys of memories, in their order, and returns of each the newest memory that was kept since a moment, among those that are shared with somebody; the places count from 1.';

CREATE OR REPLACE FUNCTION myria.append_new(
    tenant text, tenant_since text, append_lock bigint, lock_timeout text, transaction_timeout text,
    places text, ids text, scope_ids text, moments timestamptz[], channels text, types text, contexts text,
    source_keys text, dedupe_keys bytea[], internals text, payloads jsonb[], hints jsonb[],
    utc_offsets text DEFAULT NULL)
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
    -- The lock is held since the statement before: only then are numbers allocated.
    IF cardinality(payloads) = 1 THEN
        numbers := ARRAY[nextval('myria.event_seq')];
    ELSE
        numbers := ARRAY(SELECT nextval('myria.event_seq') FROM generate_series(1, cardinality(payloads)));
    END IF;
    -- In the order in which they are given, that of their keys: so two appends never wait for each other.
    INSERT INTO myria.events (tenant_id, event_seq, event_id, scope_id, occurred_at, channel, type, context_id,
                              source_event_key, dedupe_key, internal, payload, topic_hints, utc_offset)
    SELECT tenant, numbers[i.place], i.event_id, i.scope_id, i.occurred_at, i.channel, i.type, i.context_id,
           i.source_event_key, i.dedupe_key, i.internal, i.payload, i.topic_hints, nullif(i.utc_offset, 0)
    FROM (
        SELECT unnest(places::int[]) AS place, unnest(ids::text[]) AS event_id, unnest(scope_ids::bigint[]) AS scope_id,
               unnest(moments) AS occurred_at, unnest(channels::text[]) AS channel, unnest(types::text[]) AS type,
               unnest(contexts::text[]) AS context_id, unnest(source_keys::text[]) AS source_event_key,
               unnest(dedupe_keys) AS dedupe_key, unnest(internals::boolean[]) AS internal, unnest(payloads) AS payload,
               unnest(hints) AS topic_hints, unnest(utc_offsets::smallint[]) AS utc_offset
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
    RETURN numbers;
END $$;
COMMENT ON FUNCTION myria.append_new IS 'Appends events that are new, and returns their numbers in the order of their places; refuses all where one stands already (a unique index) or was erased (MYR03). For a transaction of its own: it names the tenant, bounds the waiting, and takes the lock that every append holds.';

CREATE OR REPLACE FUNCTION myria.append_one(
    tenant text, tenant_since text, append_lock bigint, lock_timeout text, transaction_timeout text,
    event_id text, scope_id bigint, occurred_at timestamptz, channel text, type text, context_id text,
    source_event_key text, dedupe_key bytea, internal boolean, payload jsonb, topic_hints jsonb,
    utc_offset int DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
    number bigint;
    done text;
BEGIN
    done := concat(
        set_config('myria.tenant', tenant, true), set_config('lock_timeout', lock_timeout, true),
        CASE WHEN current_setting('server_version_num')::int >= 170000
             THEN set_config('transaction_timeout', transaction_timeout, true) END,
        set_config('plan_cache_mode', 'force_generic_plan', true),
        set_config('myria.admits', 'own', true), set_config('myria.tally', 'own', true));
    done := pg_advisory_xact_lock_shared(append_lock);
    -- The transaction has its number before it looks at the tenant (see refuse_while_deleted).
    done := pg_current_xact_id();
    -- The lock is held since the statement before: only then is a number allocated.
    INSERT INTO myria.events (tenant_id, event_seq, event_id, scope_id, occurred_at, channel, type, context_id,
                              source_event_key, dedupe_key, internal, payload, topic_hints, utc_offset)
    SELECT tenant, nextval('myria.event_seq'), event_id, scope_id, occurred_at, channel, type, context_id,
           source_event_key, dedupe_key, internal, payload, topic_hints, nullif(utc_offset, 0)
    WHERE EXISTS (
        SELECT FROM myria.tenants t
        WHERE t.tenant_id = tenant AND t.deleting_at IS NULL AND t.created_at = tenant_since::timestamptz
          AND (NOT t.refuses_keys OR dedupe_key IS NULL OR myria.refused_among(tenant, ARRAY[dedupe_key]) = '{}')
    )
    RETURNING event_seq INTO number;
    IF number IS NULL THEN
        PERFORM myria.refuse_append(tenant, tenant_since);
    END IF;
    done := myria.count_added(tenant, octet_length(payload::text));
    RETURN number;
END $$;
COMMENT ON FUNCTION myria.append_one IS 'As append_new, of one event, which is given as it is and not in arrays. Returns its number.';

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
COMMENT ON FUNCTION myria.append_notes IS 'As append_new, with the rows of notes among the events; returns the numbers in a row without a scope, and the newest notes that scopes held before.';

CREATE OR REPLACE FUNCTION myria.append_note(
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

CREATE OR REPLACE FUNCTION myria.append_memories(
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
COMMENT ON FUNCTION myria.append_alike_memories IS 'As append_memories, of memories without sessions and source keys that differ in their texts, ids, keys and the calls that kept them alone: calls has the place of its moment, and of the beginning of its window, for each; the earliest comes first.';

CREATE OR REPLACE FUNCTION myria.append_turns(
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
