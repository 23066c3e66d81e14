-- Facts of turns that a language model finds: the turns that wait for it; and facts that last as long as they say.
--
-- Old pods go on working: they let no turn wait, and fold a fact that says how long it lasts as one of its kind. What they
-- fold so lasts as long as its kind until its next version.

-- A queue, and no truth: whoever empties it loses facts that were still to come.
CREATE TABLE myria.turn_extractions_due (
    tenant_id  text COLLATE "C" NOT NULL,
    owner      bytea NOT NULL,
    context_id text COLLATE "C" NOT NULL,
    turn_id    text COLLATE "C" NOT NULL,
    due_at     timestamptz NOT NULL,
    attempts   integer NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, owner, context_id, turn_id)
);
CREATE INDEX turn_extractions_due_at ON myria.turn_extractions_due (tenant_id, due_at);
COMMENT ON TABLE myria.turn_extractions_due IS 'Turns in which a model is to look for facts, and when it is tried next.';

ALTER TABLE myria.turn_extractions_due ENABLE ROW LEVEL SECURITY;
ALTER TABLE myria.turn_extractions_due FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_named ON myria.turn_extractions_due
    USING (tenant_id = current_setting('myria.tenant', true) OR current_setting('myria.tenant', true) = '*');
CREATE TRIGGER refuse_while_deleted BEFORE INSERT ON myria.turn_extractions_due
    FOR EACH STATEMENT EXECUTE FUNCTION myria.refuse_while_deleted();

ALTER TABLE myria.llm_calls DROP CONSTRAINT llm_calls_workflow_check;
ALTER TABLE myria.llm_calls ADD CONSTRAINT llm_calls_workflow_check
    CHECK (workflow IN ('build', 'walk', 'evaluate', 'extract')) NOT VALID;

ALTER TABLE myria.notes ADD COLUMN lasts_days integer;
COMMENT ON COLUMN myria.notes.lasts_days IS 'For how many days in UTC it holds, that on which it was said being the first; NULL: as its kind says.';

CREATE OR REPLACE VIEW myria.note_versions WITH (security_invoker) AS
SELECT e.tenant_id, e.payload->'note'->>'id' AS note_id, e.scope_id, e.event_seq, e.occurred_at,
       (e.payload->'note'->>'version')::numeric::integer AS version,
       e.payload->'note'->>'kind' AS kind,
       e.payload->'note'->>'topic' AS topic,
       (e.payload->'note'->>'importance')::numeric::real AS importance,
       coalesce(e.payload->'note'->'anchor' = 'true', false) AS anchor,
       e.context_id,
       coalesce(e.payload->'note'->>'lifetime' = 'session', false) AS session,
       sha256(convert_to(concat_ws(E'\n', e.payload->'note'->>'kind',
           CASE WHEN e.payload->'note'->>'kind' IN ('fact_l0', 'fact_l1', 'fact_l2') THEN e.payload->'note'->>'id'
                WHEN e.payload->'note'->>'lifetime' = 'session' THEN coalesce(e.context_id, '') ELSE '' END,
           e.payload->>'text'), 'UTF8')) AS digest,
       CASE WHEN jsonb_typeof(e.payload->'note'->'lasts_days') = 'number'
            THEN CASE WHEN (e.payload->'note'->>'lasts_days')::numeric BETWEEN 1 AND 36500
                      THEN (e.payload->'note'->>'lasts_days')::numeric::integer END
       END AS lasts_days
FROM myria.events e
WHERE e.type = 'myria.note' AND e.channel = 'notes' AND NOT e.internal
  AND CASE WHEN jsonb_typeof(e.payload->'note'->'id') = 'string' AND jsonb_typeof(e.payload->'note'->'kind') = 'string'
            AND jsonb_typeof(e.payload->'note'->'topic') = 'string' AND jsonb_typeof(e.payload->'text') = 'string'
            AND jsonb_typeof(e.payload->'note'->'version') = 'number'
            AND jsonb_typeof(e.payload->'note'->'importance') = 'number'
           THEN (e.payload->'note'->>'version')::numeric BETWEEN 1 AND 1000000000
                AND (e.payload->'note'->>'importance')::numeric BETWEEN 0 AND 1
           ELSE false END;

CREATE OR REPLACE VIEW myria.notes_of_log WITH (security_invoker) AS
SELECT DISTINCT ON (v.tenant_id, v.note_id)
       v.tenant_id, v.note_id, v.scope_id, v.event_seq, v.first_seq, v.version, v.kind, v.topic, v.importance, v.anchor,
       v.context_id, v.session, v.digest, v.created_at, v.occurred_at AS changed_at,
       NOT coalesce((SELECT w.reason <> 'restored' FROM myria.withdrawn w
                     WHERE w.tenant_id = v.tenant_id AND w.event_seq = v.event_seq
                     ORDER BY w.by_event_seq DESC LIMIT 1), false) AS live,
       v.lasts_days
FROM (
    SELECT u.*, first_value(u.event_seq) OVER w AS first_seq, first_value(u.scope_id) OVER w AS first_scope,
           first_value(u.occurred_at) OVER w AS created_at
    FROM myria.note_versions u
    WINDOW w AS (PARTITION BY u.tenant_id, u.note_id ORDER BY u.event_seq)
) v
WHERE v.scope_id = v.first_scope
ORDER BY v.tenant_id, v.note_id, v.event_seq DESC;

-- What says for how many days it holds ends then, as a note of a session ends with that.
CREATE OR REPLACE VIEW myria.standing_notes WITH (security_invoker) AS
SELECT n.tenant_id, n.note_id, n.scope_id, n.event_seq, n.first_seq, n.version, n.kind, n.topic, n.importance, n.anchor,
       n.context_id, n.session, n.digest, n.created_at, n.changed_at, n.live, newest.reason,
       CASE WHEN n.session THEN CASE WHEN n.event_seq < x.begun_seq OR x.ended_seq IS NOT NULL THEN n.changed_at
            ELSE coalesce(x.last_at, n.changed_at) + coalesce(x.idle_s, 3600) * interval '1 second' END
            WHEN n.lasts_days IS NOT NULL
            THEN to_timestamp((floor(extract(epoch FROM n.changed_at) / 86400) + n.lasts_days)::double precision * 86400)
       END AS session_ends_at,
       u.used_at, coalesce(u.uses, 0) AS uses
FROM myria.notes n
LEFT JOIN myria.sessions x ON n.session AND x.tenant_id = n.tenant_id AND x.scope_id = n.scope_id AND x.context_id = n.context_id
LEFT JOIN myria.note_usage u ON u.tenant_id = n.tenant_id AND u.note_id = n.note_id
LEFT JOIN LATERAL (
    SELECT w.reason FROM myria.withdrawn w
    WHERE w.tenant_id = n.tenant_id AND w.event_seq = n.event_seq ORDER BY w.by_event_seq DESC LIMIT 1
) newest ON true;
COMMENT ON VIEW myria.standing_notes IS 'Notes with what withdrawals say of their current version, when they end or have ended (with their session, or by a number of days that they name; NULL for others), and how they were used.';
