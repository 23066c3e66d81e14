-- How often notes are used, counted beside the log; and what agents say of their tools, folded from it.
--
-- Old pods go on working: they count nothing.

CREATE TABLE myria.note_usage (
    tenant_id text COLLATE "C" NOT NULL,
    note_id   text COLLATE "C" NOT NULL,
    uses      bigint NOT NULL,
    used_at   timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, note_id)
);
COMMENT ON TABLE myria.note_usage IS 'How often each note was recalled, and when last. It is no part of the log: counts of a process that ends suddenly are lost.';

CREATE TABLE myria.tool_feedback (
    tenant_id  text COLLATE "C" NOT NULL,
    event_seq  bigint NOT NULL,
    scope_id   bigint NOT NULL,
    tool       text COLLATE "C" NOT NULL,
    relevant   boolean NOT NULL,
    sufficient boolean NOT NULL,
    said_at    timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, event_seq)
);
CREATE INDEX tool_feedback_newest ON myria.tool_feedback (tenant_id, said_at DESC, event_seq DESC);
COMMENT ON TABLE myria.tool_feedback IS 'What agents say of answers of tools; their words are in the events.';

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['note_usage', 'tool_feedback'] LOOP
        EXECUTE format('ALTER TABLE myria.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE myria.%I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format($p$CREATE POLICY tenant_named ON myria.%I
            USING (tenant_id = current_setting('myria.tenant', true) OR current_setting('myria.tenant', true) = '*')$p$, name);
        EXECUTE format('CREATE TRIGGER refuse_while_deleted BEFORE INSERT ON myria.%I
            FOR EACH STATEMENT EXECUTE FUNCTION myria.refuse_while_deleted()', name);
    END LOOP;
END $$;

-- The fold itself, as a function of the log. What is no feedback in full is none.
CREATE VIEW myria.tool_feedback_of_log WITH (security_invoker) AS
SELECT e.tenant_id, e.event_seq, e.scope_id, said.of->>'tool' AS tool, said.of->'relevant' = 'true' AS relevant,
       said.of->'sufficient' = 'true' AS sufficient, e.occurred_at AS said_at
FROM myria.events e
CROSS JOIN LATERAL (SELECT e.payload->'feedback') AS said (of)
WHERE e.type = 'myria.feedback' AND e.channel = 'myria' AND e.internal AND jsonb_typeof(said.of->'tool') = 'string'
  AND jsonb_typeof(said.of->'relevant') = 'boolean' AND jsonb_typeof(said.of->'sufficient') = 'boolean';
COMMENT ON VIEW myria.tool_feedback_of_log IS 'The rows of tool_feedback as the log gives them.';

CREATE OR REPLACE VIEW myria.standing_notes WITH (security_invoker) AS
SELECT n.*, newest.reason,
       CASE WHEN n.session THEN CASE WHEN n.event_seq < x.begun_seq OR x.ended_seq IS NOT NULL THEN n.changed_at
            ELSE coalesce(x.last_at, n.changed_at) + coalesce(x.idle_s, 3600) * interval '1 second' END
       END AS session_ends_at,
       u.used_at, coalesce(u.uses, 0) AS uses
FROM myria.notes n
LEFT JOIN myria.sessions x ON n.session AND x.tenant_id = n.tenant_id AND x.scope_id = n.scope_id AND x.context_id = n.context_id
LEFT JOIN myria.note_usage u ON u.tenant_id = n.tenant_id AND u.note_id = n.note_id
LEFT JOIN LATERAL (
    SELECT w.reason FROM myria.withdrawn w
    WHERE w.tenant_id = n.tenant_id AND w.event_seq = n.event_seq ORDER BY w.by_event_seq DESC LIMIT 1
) newest ON true;
COMMENT ON VIEW myria.standing_notes IS 'Notes with what withdrawals say of their current version, when their session is over by itself, or was over (NULL for a note that does not end with one), and how they were used.';
