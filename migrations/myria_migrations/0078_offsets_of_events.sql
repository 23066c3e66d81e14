-- The offset of an event's timestamp, as it was given: which day it was, and what "tomorrow" means in its text, is told by
-- the clock on the wall there. NULL is UTC, which all events before have.
--
-- Old pods go on working: they call both functions without the last argument. What append_new took of memories nothing
-- calls any more (0067).

ALTER TABLE myria.events ADD COLUMN utc_offset smallint;
COMMENT ON COLUMN myria.events.utc_offset IS 'The offset of the timestamp as it was given, in minutes east of UTC; NULL for UTC.';

DROP FUNCTION myria.append_new;
CREATE FUNCTION myria.append_new(
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

DROP FUNCTION myria.append_one;
CREATE FUNCTION myria.append_one(
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
