-- When notes end, and when maintenance looks at them.

CREATE OR REPLACE FUNCTION myria.note_ends_at(kind text, importance real, anchor boolean, changed_at timestamptz,
                                              used_at timestamptz, lasts_days integer)
RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT CASE
        WHEN anchor THEN NULL
        WHEN lasts_days IS NOT NULL OR kind IN ('fact_l1', 'fact_l2')
        THEN to_timestamp((floor(extract(epoch FROM changed_at) / 86400)
                           + coalesce(lasts_days, CASE kind WHEN 'fact_l1' THEN 1 ELSE 7 END))::double precision * 86400)
        WHEN importance::double precision >= 0.8 THEN NULL
        WHEN kind IN ('fact', 'error', 'relation', 'episode', 'decision', 'procedure')
        THEN greatest(changed_at, used_at) + make_interval(secs => 86400 * greatest(
            CASE kind WHEN 'decision' THEN 90::double precision WHEN 'procedure' THEN 30 ELSE 60 END,
            CASE WHEN importance::double precision >= 0.5 THEN 139 * ln(importance::double precision / 0.1) / ln(2) END))
    END
$$;
COMMENT ON FUNCTION myria.note_ends_at IS 'When a note that ends with no session ends if nobody uses it: notes/expiry.py with the policies of notes/kinds.toml. NULL: never.';

-- A session note ends when its session does, which is idle for as long as the note's event says; another as note_ends_at
-- says. Notes of the kinds that only REST keeps never end, so maintenance need not look at them.
CREATE OR REPLACE FUNCTION myria.look_at_notes() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO myria.note_looks AS k (tenant_id, note_id, scope_id, look_at, ends_at)
    SELECT n.tenant_id, n.note_id, n.scope_id, n.changed_at,
           CASE WHEN n.session THEN n.changed_at + interval '1 second' * coalesce((
               SELECT s.idle_s FROM myria.session_events s
               WHERE s.tenant_id = n.tenant_id AND s.event_seq = n.event_seq), 3600)
           ELSE myria.note_ends_at(n.kind, n.importance, n.anchor, n.changed_at, (
               SELECT u.used_at FROM myria.note_usage u
               WHERE TG_OP = 'UPDATE' AND u.tenant_id = n.tenant_id AND u.note_id = n.note_id), n.lasts_days) END
    FROM written n
    WHERE n.live AND (n.session OR n.kind NOT IN ('episodic', 'session', 'entity')) ORDER BY n.note_id
    ON CONFLICT (tenant_id, note_id) DO UPDATE SET
        look_at = EXCLUDED.look_at, ends_at = EXCLUDED.ends_at, phase = NULL, likeness = NULL;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION myria.look_at_notes IS 'Puts the notes that a statement wrote into the queue of maintenance.';

CREATE OR REPLACE FUNCTION myria.ended_notes(tenant text, at timestamptz)
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

CREATE OR REPLACE FUNCTION myria.versions_of(tenant text, note text)
RETURNS TABLE (event_seq bigint, event_id text, scope_id bigint, occurred_at timestamptz, context_id text, payload jsonb)
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    WITH RECURSIVE chain AS (
        SELECT e.event_seq, e.event_id, e.scope_id, e.occurred_at, e.context_id, e.payload
        FROM myria.notes n JOIN myria.events e ON e.tenant_id = tenant AND e.event_seq = n.event_seq
        WHERE n.tenant_id = tenant AND n.note_id = note
        UNION ALL
        SELECT p.event_seq, p.event_id, p.scope_id, p.occurred_at, p.context_id, p.payload
        FROM chain c JOIN myria.events p
            ON p.tenant_id = tenant AND p.event_id = c.payload->'note'->>'previous' AND p.scope_id = c.scope_id
            AND p.event_seq < c.event_seq
        WHERE p.type = 'myria.note' AND p.payload->'note'->>'id' = note
    )
    SELECT * FROM chain
$$;
COMMENT ON FUNCTION myria.versions_of IS 'The events of the versions of a note, newest first: each names the one before.';

CREATE OR REPLACE FUNCTION myria.ended_events(tenant text, at timestamptz)
RETURNS TABLE (event_seq bigint, scope_id bigint, occurred_at timestamptz)
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT v.event_seq, v.scope_id, v.occurred_at
    FROM myria.ended_notes(tenant, at) n CROSS JOIN LATERAL myria.versions_of(tenant, n.note_id) v
$$;
COMMENT ON FUNCTION myria.ended_events IS 'The events of all versions of notes that have ended at a moment, and that maintenance has not withdrawn yet.';

CREATE OR REPLACE FUNCTION myria.covers_withdrawn(
    tenant text, scope bigint, first_at timestamptz, last_at timestamptz, past bigint) RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT EXISTS (
        SELECT FROM myria.withdrawn w
        JOIN myria.events e ON e.tenant_id = tenant AND e.event_seq = w.event_seq
        WHERE w.tenant_id = tenant AND w.scope_id = scope AND w.by_event_seq > past
          AND e.occurred_at BETWEEN first_at AND last_at
          AND coalesce((SELECT x.reason <> 'restored' FROM myria.withdrawn x
                        WHERE x.tenant_id = tenant AND x.event_seq = w.event_seq
                        ORDER BY x.by_event_seq DESC LIMIT 1), false))
        OR EXISTS (
        SELECT FROM myria.ended_events(tenant, now()) d
        WHERE d.scope_id = scope AND d.occurred_at BETWEEN first_at AND last_at)
$$;
COMMENT ON FUNCTION myria.covers_withdrawn IS 'Whether a topic spans the moment of an event that was withdrawn past the number up to which its tree knows: its words may be made of it.';
