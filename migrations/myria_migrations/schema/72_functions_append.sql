-- The one way into the log.
--
-- Whoever appends shares the append lock, which a build's capture takes alone, and allocates numbers only then: so no event
-- below a build's cutoff is still to be committed. Nothing is looked up before it is inserted: unique indexes tell what
-- stands already. Bytes are counted here and not by a trigger (myria.tally = own): PostgreSQL would keep the rows for it.

CREATE OR REPLACE FUNCTION myria.append(tenant text, added myria.new_event[])
RETURNS TABLE (event_id text, event_seq bigint)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH numbered AS MATERIALIZED (
        -- In the order of the caller, who holds the append lock since the statement before.
        SELECT e.*, nextval('myria.event_seq') AS number FROM unnest(added) AS e
    ), inserted AS (
        INSERT INTO myria.events (tenant_id, event_seq, event_id, scope_id, occurred_at, channel, type, context_id,
                                  source_event_key, dedupe_key, internal, payload, topic_hints, utc_offset)
        SELECT tenant, n.number, n.event_id, n.scope_id, n.occurred_at, n.channel, n.type, n.context_id,
               n.source_event_key, n.dedupe_key, n.internal, n.payload, n.topic_hints, nullif(n.utc_offset, 0)
        FROM numbered n
        WHERE n.dedupe_key IS NULL OR n.dedupe_key <> ALL ((
            SELECT myria.refused_among(tenant, ARRAY(SELECT k.dedupe_key FROM numbered k WHERE k.dedupe_key IS NOT NULL))
        )::bytea[])
        -- Two appends that share keys take them in one order, so neither waits for the other.
        ORDER BY n.dedupe_key, n.number
        ON CONFLICT DO NOTHING
        RETURNING event_id, event_seq, octet_length(payload::text) AS bytes
    ), counted AS MATERIALIZED (
        SELECT myria.count_added(tenant, sum(i.bytes)) FROM inserted i HAVING count(*) > 0
    )
    SELECT i.event_id, i.event_seq FROM inserted i CROSS JOIN counted;
END $$;
COMMENT ON FUNCTION myria.append IS 'Appends events and returns the id and number of each that is new. One that stands already, by its id or its key, and one whose key was erased are left out. Its transaction holds the append lock, names the tenant and counts bytes itself (myria.tally = own).';

-- One round trip where the general way takes four: one event takes .37 ms instead of .74.
CREATE OR REPLACE FUNCTION myria.append_alone(
    tenant text, tenant_since text, append_lock bigint, lock_timeout text, transaction_timeout text,
    added myria.new_event[])
RETURNS TABLE (event_id text, event_seq bigint)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    inserted bigint;
BEGIN
    PERFORM set_config('myria.tenant', tenant, true), set_config('lock_timeout', lock_timeout, true),
        CASE WHEN current_setting('server_version_num')::int >= 170000
             THEN set_config('transaction_timeout', transaction_timeout, true) END,
        set_config('plan_cache_mode', 'force_generic_plan', true),
        set_config('myria.tenant_since', tenant_since, true), set_config('myria.tally', 'own', true);
    PERFORM pg_advisory_xact_lock_shared(append_lock);
    RETURN QUERY SELECT a.event_id, a.event_seq FROM myria.append(tenant, added) a;
    GET DIAGNOSTICS inserted = ROW_COUNT;
    IF inserted < cardinality(added) THEN
        RAISE EXCEPTION 'an event is not new' USING ERRCODE = 'MYR03';
    END IF;
END $$;
COMMENT ON FUNCTION myria.append_alone IS 'A whole transaction that appends events of which nothing is folded; stores none of them where one is not new (MYR03).';
