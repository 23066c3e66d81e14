-- What one append asks before it inserts: whether its tenant erased something at all, without which no key is compared
-- with those of erased events; and how it says why it inserted nothing, and counts its bytes.
--
-- Old pods go on working: they ask as before. The next migrations use it; each takes the lock of one table alone, since
-- appends take those of several, in another order.

CREATE FUNCTION myria.refuse_keys_from_now() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE myria.tenants t SET refuses_keys = true WHERE t.tenant_id = NEW.tenant_id;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION myria.refuse_keys_from_now IS 'Notes that a tenant has the secret without which no key is refused.';
CREATE TRIGGER refuse_keys_from_now AFTER INSERT ON myria.erasure_secrets
    FOR EACH ROW EXECUTE FUNCTION myria.refuse_keys_from_now();

ALTER TABLE myria.tenants ADD COLUMN refuses_keys boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN myria.tenants.refuses_keys IS 'Whether it erased something, so that keys of events may be refused.';
SELECT set_config('myria.tenant', '*', true);
UPDATE myria.tenants t SET refuses_keys = true FROM myria.erasure_secrets s WHERE s.tenant_id = t.tenant_id;

CREATE FUNCTION myria.refuse_append(tenant text, tenant_since text) RETURNS void
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

-- Row-level security lets in what is of the tenant that is named, and nothing else.
CREATE FUNCTION myria.count_added(tenant text, bytes bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    own CONSTANT smallint := pg_backend_pid() % 16;
BEGIN
    IF bytes < 0 THEN
        RAISE EXCEPTION 'what is appended has no negative size' USING ERRCODE = '22003';
    END IF;
    UPDATE myria.stored_sizes s SET payload_bytes = s.payload_bytes + bytes WHERE s.tenant_id = tenant AND s.part = own;
    IF NOT FOUND THEN
        INSERT INTO myria.stored_sizes AS s (tenant_id, part, payload_bytes) VALUES (tenant, own, bytes)
        ON CONFLICT (tenant_id, part) DO UPDATE SET payload_bytes = s.payload_bytes + EXCLUDED.payload_bytes;
    END IF;
END $$;
COMMENT ON FUNCTION myria.count_added IS 'Counts the bytes of events that were inserted, for whoever says that it counts them itself (myria.tally = own).';

CREATE FUNCTION myria.append_one(
    tenant text, tenant_since text, append_lock bigint, lock_timeout text, transaction_timeout text,
    event_id text, scope_id bigint, occurred_at timestamptz, channel text, type text, context_id text,
    source_event_key text, dedupe_key bytea, internal boolean, payload jsonb, topic_hints jsonb)
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
                              source_event_key, dedupe_key, internal, payload, topic_hints)
    SELECT tenant, nextval('myria.event_seq'), event_id, scope_id, occurred_at, channel, type, context_id,
           source_event_key, dedupe_key, internal, payload, topic_hints
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
