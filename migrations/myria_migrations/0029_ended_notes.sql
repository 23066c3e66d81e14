-- When a note ends, as far as it is known: what has ended is in no answer from that moment on, before maintenance
-- withdraws it.
--
-- Old pods go on working, and show a note that has ended until maintenance withdraws it. What one of them looks at stays
-- as it was kept.

ALTER TABLE myria.note_looks ADD COLUMN ends_at timestamptz;
COMMENT ON COLUMN myria.note_looks.ends_at IS 'No later than the end of a session note, and the end of another if nobody uses it; NULL: not known, or never.';
CREATE INDEX note_looks_ends ON myria.note_looks (tenant_id, ends_at) WHERE ends_at IS NOT NULL;

-- A session note says how long its session may be idle; what prolongs the session, and what ends it, comes later. When
-- another note ends is known once maintenance has looked at it: that is weeks before.
CREATE OR REPLACE FUNCTION myria.look_at_note() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    ends_at timestamptz;
BEGIN
    IF NEW.session THEN
        ends_at := NEW.changed_at + interval '1 second' * coalesce((
            SELECT s.idle_s FROM myria.session_events s
            WHERE s.tenant_id = NEW.tenant_id AND s.event_seq = NEW.event_seq), 3600);
    END IF;
    INSERT INTO myria.note_looks AS k (tenant_id, note_id, scope_id, look_at, ends_at)
    VALUES (NEW.tenant_id, NEW.note_id, NEW.scope_id, NEW.changed_at, ends_at)
    ON CONFLICT (tenant_id, note_id) DO UPDATE SET
        look_at = EXCLUDED.look_at, ends_at = EXCLUDED.ends_at, phase = NULL, likeness = NULL;
    RETURN NULL;
END $$;

SELECT set_config('myria.tenant', '*', true);
UPDATE myria.note_looks k SET ends_at = k.look_at
FROM myria.notes n
WHERE n.tenant_id = k.tenant_id AND n.note_id = k.note_id AND n.live AND n.session;

CREATE FUNCTION myria.ended_notes(tenant text, at timestamptz)
RETURNS TABLE (note_id text, scope_id bigint, event_seq bigint)
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT n.note_id, n.scope_id, n.event_seq
    FROM myria.note_looks k
    CROSS JOIN LATERAL (
        SELECT s.* FROM myria.standing_notes s WHERE s.tenant_id = tenant AND s.note_id = k.note_id OFFSET 0
    ) n
    WHERE k.tenant_id = tenant AND k.ends_at IS NOT NULL AND k.ends_at <= at
      AND n.live AND NOT n.anchor AND n.reason IS DISTINCT FROM 'restored' AND (NOT n.session OR n.session_ends_at <= at)
$$;
COMMENT ON FUNCTION myria.ended_notes IS 'Notes that have ended at a moment, and that maintenance has not withdrawn yet.';

CREATE FUNCTION myria.ended_events(tenant text, at timestamptz)
RETURNS TABLE (event_seq bigint, scope_id bigint, occurred_at timestamptz)
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT version.event_seq, version.scope_id, version.occurred_at
    FROM myria.ended_notes(tenant, at) n
    CROSS JOIN LATERAL (
        WITH RECURSIVE chain AS (
            SELECT e.event_seq, e.scope_id, e.occurred_at, e.payload->'note'->>'previous' AS previous
            FROM myria.events e WHERE e.tenant_id = tenant AND e.event_seq = n.event_seq
            UNION ALL
            SELECT p.event_seq, p.scope_id, p.occurred_at, p.payload->'note'->>'previous'
            FROM chain c JOIN myria.events p
                ON p.tenant_id = tenant AND p.event_id = c.previous AND p.scope_id = c.scope_id
                AND p.event_seq < c.event_seq
            WHERE p.type = 'myria.note' AND p.payload->'note'->>'id' = n.note_id
        )
        SELECT chain.event_seq, chain.scope_id, chain.occurred_at FROM chain
    ) version
$$;
COMMENT ON FUNCTION myria.ended_events IS 'The events of all versions of notes that have ended at a moment, and that maintenance has not withdrawn yet.';
