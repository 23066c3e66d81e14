-- What a session begins with is read from indexes, and what decides when a note expires has one name.
--
-- Old pods go on working.

CREATE INDEX notes_reflected ON myria.notes (tenant_id, scope_id, event_seq DESC) WHERE live AND topic = 'session_reflect';

CREATE VIEW myria.standing_notes WITH (security_invoker) AS
SELECT n.*, newest.reason,
       CASE WHEN n.session THEN CASE WHEN n.event_seq < x.begun_seq OR x.ended_seq IS NOT NULL THEN n.changed_at
            ELSE coalesce(x.last_at, n.changed_at) + coalesce(x.idle_s, 3600) * interval '1 second' END
       END AS session_ends_at
FROM myria.notes n
LEFT JOIN myria.sessions x ON n.session AND x.tenant_id = n.tenant_id AND x.scope_id = n.scope_id AND x.context_id = n.context_id
LEFT JOIN LATERAL (
    SELECT w.reason FROM myria.withdrawn w
    WHERE w.tenant_id = n.tenant_id AND w.event_seq = n.event_seq ORDER BY w.by_event_seq DESC LIMIT 1
) newest ON true;
COMMENT ON VIEW myria.standing_notes IS 'Notes with what withdrawals say of their current version, and when their session is over by itself, or was over (NULL for a note that does not end with one).';
