-- What a language model thinks notes are worth: an outbox of those to be rated, and the ratings, folded from the log.
--
-- Old pods go on working: they put nothing into the outbox, and fold no ratings, which only maintenance appends.

CREATE TABLE myria.note_evaluations (
    tenant_id    text COLLATE "C" NOT NULL,
    note_id      text COLLATE "C" NOT NULL,
    scope_id     bigint NOT NULL,
    version      integer NOT NULL,
    worth        real NOT NULL,
    event_seq    bigint NOT NULL,
    evaluated_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, note_id, scope_id)
);
COMMENT ON TABLE myria.note_evaluations IS 'The newest rating of each note; it counts for the version that it names alone.';
COMMENT ON COLUMN myria.note_evaluations.worth IS 'How informative, specific and useful the note is, 0..1.';

-- A queue, and no truth: whoever empties it loses ratings that were still to come.
CREATE TABLE myria.note_evaluations_due (
    tenant_id text COLLATE "C" NOT NULL,
    note_id   text COLLATE "C" NOT NULL,
    version   integer NOT NULL,
    due_at    timestamptz NOT NULL,
    attempts  integer NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, note_id)
);
CREATE INDEX note_evaluations_due_at ON myria.note_evaluations_due (tenant_id, due_at);
COMMENT ON TABLE myria.note_evaluations_due IS 'Notes that wait for a rating, and when they are tried next.';

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['note_evaluations', 'note_evaluations_due'] LOOP
        EXECUTE format('ALTER TABLE myria.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE myria.%I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format($p$CREATE POLICY tenant_named ON myria.%I
            USING (tenant_id = current_setting('myria.tenant', true) OR current_setting('myria.tenant', true) = '*')$p$, name);
        EXECUTE format('CREATE TRIGGER refuse_while_deleted BEFORE INSERT ON myria.%I
            FOR EACH STATEMENT EXECUTE FUNCTION myria.refuse_while_deleted()', name);
    END LOOP;
END $$;

-- The fold itself, as a function of the log. What is no rating in full is none.
CREATE VIEW myria.note_evaluations_of_log WITH (security_invoker) AS
SELECT DISTINCT ON (e.tenant_id, said.of->>'note', e.scope_id)
       e.tenant_id, said.of->>'note' AS note_id, e.scope_id, (said.of->>'version')::numeric::integer AS version,
       (said.of->>'worth')::numeric::real AS worth, e.event_seq, e.occurred_at AS evaluated_at
FROM myria.events e
CROSS JOIN LATERAL (SELECT e.payload->'evaluation') AS said (of)
WHERE e.type = 'myria.evaluation' AND e.channel = 'notes' AND e.internal
  AND CASE WHEN jsonb_typeof(said.of->'note') = 'string' AND jsonb_typeof(said.of->'version') = 'number'
            AND jsonb_typeof(said.of->'worth') = 'number'
           THEN (said.of->>'version')::numeric BETWEEN 1 AND 1000000000 AND (said.of->>'worth')::numeric BETWEEN 0 AND 1
           ELSE false END
ORDER BY e.tenant_id, said.of->>'note', e.scope_id, e.event_seq DESC;
COMMENT ON VIEW myria.note_evaluations_of_log IS 'The rows of note_evaluations as the log gives them.';

ALTER TABLE myria.llm_calls DROP CONSTRAINT llm_calls_workflow_check;
ALTER TABLE myria.llm_calls ADD CONSTRAINT llm_calls_workflow_check
    CHECK (workflow IN ('build', 'walk', 'evaluate')) NOT VALID;
