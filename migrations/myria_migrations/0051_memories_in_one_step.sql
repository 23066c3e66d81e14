-- Keeping a memory takes two round trips less: its key is locked and looked up by one call.
--
-- Old pods go on working: they take the same locks, one statement after the other.

CREATE FUNCTION myria.standing_memories(
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
