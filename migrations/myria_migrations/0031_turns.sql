-- Turns: what a host hands over before and after each one, folded from the log; and facts, of which a context has its own.
--
-- Old pods go on working: they append no turns, and no facts.

CREATE TABLE myria.turns (
    tenant_id  text COLLATE "C" NOT NULL,
    owner      bytea NOT NULL,
    context_id text COLLATE "C" NOT NULL,
    turn_id    text COLLATE "C" NOT NULL,
    scope_id   bigint NOT NULL,
    event_seq  bigint NOT NULL,
    items      text[] COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, owner, context_id, turn_id)
);
CREATE UNIQUE INDEX turns_newest ON myria.turns (tenant_id, owner, context_id, event_seq);
COMMENT ON TABLE myria.turns IS 'The turns that were stored, each once.';
COMMENT ON COLUMN myria.turns.owner IS 'SHA-256 of the participants of the credential whose session it is, without the user.';
COMMENT ON COLUMN myria.turns.event_seq IS 'The mark that says that the turn is complete.';
COMMENT ON COLUMN myria.turns.items IS 'The events of what went in and came out, in order.';

CREATE TABLE myria.turn_sessions (
    tenant_id  text COLLATE "C" NOT NULL,
    owner      bytea NOT NULL,
    context_id text COLLATE "C" NOT NULL,
    scope_id   bigint NOT NULL,
    first_seq  bigint NOT NULL,
    last_seq   bigint NOT NULL,
    turns      bigint NOT NULL,
    items      bigint NOT NULL,
    PRIMARY KEY (tenant_id, owner, context_id, scope_id)
);
COMMENT ON TABLE myria.turn_sessions IS 'How far each session of turns has come, by scope: one for each user that was named in it.';
COMMENT ON COLUMN myria.turn_sessions.last_seq IS 'The mark of its newest turn.';

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['turns', 'turn_sessions'] LOOP
        EXECUTE format('ALTER TABLE myria.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE myria.%I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format($p$CREATE POLICY tenant_named ON myria.%I
            USING (tenant_id = current_setting('myria.tenant', true) OR current_setting('myria.tenant', true) = '*')$p$, name);
        EXECUTE format('CREATE TRIGGER refuse_while_deleted BEFORE INSERT ON myria.%I
            FOR EACH STATEMENT EXECUTE FUNCTION myria.refuse_while_deleted()', name);
    END LOOP;
END $$;

-- The folds themselves, as functions of the log. What is no mark in full is none.
-- `coalesce` keeps the planner from the index of internal events, which has one entry per turn and no number.
CREATE VIEW myria.turn_marks WITH (security_invoker) AS
SELECT e.tenant_id, decode(said.turn->>'owner', 'hex') AS owner, e.context_id, said.turn->>'id' AS turn_id, e.scope_id,
       e.event_seq, ARRAY(SELECT jsonb_array_elements_text(said.turn->'items')) COLLATE "C" AS items
FROM myria.events e
CROSS JOIN LATERAL (SELECT e.payload->'turn') AS said (turn)
WHERE e.type = 'myria.turn' AND coalesce(e.internal, false) AND e.context_id IS NOT NULL AND e.channel = 'turn:' || e.context_id
  AND jsonb_typeof(said.turn->'id') = 'string' AND jsonb_typeof(said.turn->'items') = 'array'
  AND said.turn->>'owner' ~ '^[0-9a-f]{64}$';
COMMENT ON VIEW myria.turn_marks IS 'Every mark of a turn, one row per event.';

CREATE VIEW myria.turns_of_log WITH (security_invoker) AS
SELECT DISTINCT ON (m.tenant_id, m.owner, m.context_id, m.turn_id)
       m.tenant_id, m.owner, m.context_id, m.turn_id, m.scope_id, m.event_seq, m.items
FROM myria.turn_marks m
ORDER BY m.tenant_id, m.owner, m.context_id, m.turn_id, m.event_seq;
COMMENT ON VIEW myria.turns_of_log IS 'The rows of turns as the log gives them.';

CREATE VIEW myria.turn_sessions_of_log WITH (security_invoker) AS
SELECT t.tenant_id, t.owner, t.context_id, t.scope_id, min(t.event_seq) AS first_seq, max(t.event_seq) AS last_seq,
       count(*) AS turns, sum(cardinality(t.items))::bigint AS items
FROM myria.turns_of_log t
GROUP BY t.tenant_id, t.owner, t.context_id, t.scope_id;
COMMENT ON VIEW myria.turn_sessions_of_log IS 'The rows of turn_sessions as the log gives them.';

-- A fact is what its context knows under one name: two contexts may know the same.
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
           e.payload->>'text'), 'UTF8')) AS digest
FROM myria.events e
WHERE e.type = 'myria.note' AND e.channel = 'notes' AND NOT e.internal
  AND CASE WHEN jsonb_typeof(e.payload->'note'->'id') = 'string' AND jsonb_typeof(e.payload->'note'->'kind') = 'string'
            AND jsonb_typeof(e.payload->'note'->'topic') = 'string' AND jsonb_typeof(e.payload->'text') = 'string'
            AND jsonb_typeof(e.payload->'note'->'version') = 'number'
            AND jsonb_typeof(e.payload->'note'->'importance') = 'number'
           THEN (e.payload->'note'->>'version')::numeric BETWEEN 1 AND 1000000000
                AND (e.payload->'note'->>'importance')::numeric BETWEEN 0 AND 1
           ELSE false END;
