-- Memories that are alike but for their texts (one call of one agent, as a rule) are appended with what they share given
-- once, and whether one stands already is asked of all their keys in one scan. Notes that need no looks of maintenance no
-- longer start the function that would put them into its queue. The newest notes of scopes stand in the order in which they
-- come, so that pages are filled (an index half as large, read backwards), and keys are told apart by what differs first.
--
-- Old pods go on working: they append by the functions that they know.

CREATE INDEX notes_newest_last ON myria.notes (tenant_id, scope_id, event_seq) WHERE live;
DROP INDEX myria.notes_newest;
ALTER INDEX myria.notes_newest_last RENAME TO notes_newest;

CREATE INDEX memories_by_key ON myria.memories (dedup_key, tenant_id, created_at) WHERE dedup_key IS NOT NULL;
DROP INDEX myria.memories_dedup;
ALTER INDEX myria.memories_by_key RENAME TO memories_dedup;

DROP TRIGGER look_at_new_notes ON myria.notes;
CREATE TRIGGER look_at_new_notes AFTER INSERT ON myria.notes REFERENCING NEW TABLE AS made
    FOR EACH STATEMENT WHEN (current_setting('myria.looks', true) IS DISTINCT FROM 'none')
    EXECUTE FUNCTION myria.look_at_new_notes();

CREATE FUNCTION myria.append_alike_memories(
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
        set_config('myria.looks', CASE WHEN kind IN ('episodic', 'session', 'entity') THEN 'none' ELSE '' END, true));
    done := pg_advisory_xact_lock_shared(append_lock);
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
    ) i;
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
