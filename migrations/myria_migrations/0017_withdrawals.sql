-- Withdrawals: events that take other events out of every answer, and their projection.
--
-- Old pods go on working, and store nothing that is wrong; but they know no withdrawals. Until the last of them is gone,
-- those that still serve show what was withdrawn, and trees that an old builder compiles hold it (new pods mask it
-- there, and the next build of a new builder plans everything anew). So withdraw only when the upgrade is through.

CREATE TABLE myria.withdrawn (
    tenant_id     text COLLATE "C" NOT NULL,
    scope_id      bigint NOT NULL,
    event_seq     bigint NOT NULL,
    by_event_seq  bigint NOT NULL,
    reason        text COLLATE "C" NOT NULL CHECK (reason IN ('superseded', 'forgotten', 'expired', 'restored')),
    superseded_by bigint,
    xid           xid8 NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (tenant_id, event_seq, by_event_seq) INCLUDE (reason),
    CHECK (by_event_seq > event_seq)
);
CREATE INDEX withdrawn_by ON myria.withdrawn (tenant_id, by_event_seq) INCLUDE (scope_id, event_seq);
CREATE INDEX withdrawn_scope ON myria.withdrawn (tenant_id, scope_id, by_event_seq) INCLUDE (event_seq);
COMMENT ON TABLE myria.withdrawn IS 'What withdrawals say of events, folded from the log in the append transaction: one row per withdrawal and event, only ever added. An event is withdrawn if its newest row says anything but restored.';
COMMENT ON COLUMN myria.withdrawn.superseded_by IS 'The event that replaced it, where there is one.';
COMMENT ON COLUMN myria.withdrawn.xid IS 'The appending transaction, as in events.';

ALTER TABLE myria.withdrawn ENABLE ROW LEVEL SECURITY;
ALTER TABLE myria.withdrawn FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_named ON myria.withdrawn
    USING (tenant_id = current_setting('myria.tenant', true) OR current_setting('myria.tenant', true) = '*');
CREATE TRIGGER refuse_while_deleted BEFORE INSERT ON myria.withdrawn
    FOR EACH STATEMENT EXECUTE FUNCTION myria.refuse_while_deleted();

-- The fold itself, as a function of the log: appends insert rows of it, `myria verify` compares all of them.
CREATE VIEW myria.withdrawals_of_log WITH (security_invoker) AS
SELECT w.tenant_id, w.scope_id, e.event_seq, w.event_seq AS by_event_seq, w.payload->>'reason' AS reason,
       (SELECT s.event_seq FROM myria.events s
        WHERE s.tenant_id = w.tenant_id AND s.event_id = w.payload->>'superseded_by' AND s.event_seq < w.event_seq
        UNION ALL
        SELECT s.event_seq FROM myria.events s
        WHERE s.tenant_id = w.tenant_id AND s.dedupe_key = decode(w.payload->>'superseded_by_key', 'hex')
          AND s.event_seq < w.event_seq
        LIMIT 1) AS superseded_by
FROM myria.events w
CROSS JOIN LATERAL (
    SELECT DISTINCT named.event_id
    FROM jsonb_array_elements_text(
        CASE WHEN jsonb_typeof(w.payload->'events') = 'array' THEN w.payload->'events' ELSE '[]' END) AS named (event_id)
) named
JOIN myria.events e ON e.tenant_id = w.tenant_id AND e.event_id = named.event_id AND e.scope_id = w.scope_id
                   AND e.event_seq < w.event_seq
WHERE w.type = 'myria.withdrawal' AND w.channel = 'myria' AND w.internal
  AND w.payload->>'reason' IN ('superseded', 'forgotten', 'expired', 'restored');
COMMENT ON VIEW myria.withdrawals_of_log IS 'The rows of withdrawn as the log gives them.';

ALTER TABLE myria.snapshots ADD COLUMN knows_withdrawals boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN myria.snapshots.knows_withdrawals IS 'Whether its trees leave out what was withdrawn up to its cutoff: false where a builder before 0017 made it.';

-- A scope whose events were all withdrawn has no tree any more. Old pods read such a row as a scope without one.
ALTER TABLE myria.scope_roots ALTER COLUMN root_rendering_id DROP NOT NULL;
