-- Notes: what is kept on purpose, folded from the log in the append transaction.
--
-- Old pods go on working, and append no notes.

CREATE TABLE myria.notes (
    tenant_id  text COLLATE "C" NOT NULL,
    note_id    text COLLATE "C" NOT NULL,
    scope_id   bigint NOT NULL,
    event_seq  bigint NOT NULL,
    first_seq  bigint NOT NULL,
    version    integer NOT NULL,
    kind       text COLLATE "C" NOT NULL,
    topic      text COLLATE "C" NOT NULL,
    importance real NOT NULL,
    anchor     boolean NOT NULL,
    context_id text COLLATE "C",
    session    boolean NOT NULL,
    digest     bytea NOT NULL,
    created_at timestamptz NOT NULL,
    changed_at timestamptz NOT NULL,
    live       boolean NOT NULL,
    PRIMARY KEY (tenant_id, note_id)
);
CREATE UNIQUE INDEX notes_event ON myria.notes (tenant_id, event_seq);
CREATE UNIQUE INDEX notes_once ON myria.notes (tenant_id, scope_id, digest) WHERE live;
CREATE INDEX notes_kind ON myria.notes (tenant_id, scope_id, kind, importance DESC, event_seq DESC) WHERE live;
COMMENT ON TABLE myria.notes IS 'The current version of each note; what it says is the payload of its event.';
COMMENT ON COLUMN myria.notes.event_seq IS 'The event of the current version.';
COMMENT ON COLUMN myria.notes.first_seq IS 'The event of the first version.';
COMMENT ON COLUMN myria.notes.context_id IS 'The session in which it was made, where one was named.';
COMMENT ON COLUMN myria.notes.session IS 'Whether it ends with its session, and is recalled in it alone.';
COMMENT ON COLUMN myria.notes.digest IS 'SHA-256 of kind, session and redacted text: no two live notes of a scope have the same.';
COMMENT ON COLUMN myria.notes.live IS 'False once its current version is withdrawn.';

ALTER TABLE myria.notes ENABLE ROW LEVEL SECURITY;
ALTER TABLE myria.notes FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_named ON myria.notes
    USING (tenant_id = current_setting('myria.tenant', true) OR current_setting('myria.tenant', true) = '*');
CREATE TRIGGER refuse_while_deleted BEFORE INSERT ON myria.notes
    FOR EACH STATEMENT EXECUTE FUNCTION myria.refuse_while_deleted();

-- Every version of every note, as the log says it. What is no note in full is none.
CREATE VIEW myria.note_versions WITH (security_invoker) AS
SELECT e.tenant_id, e.payload->'note'->>'id' AS note_id, e.scope_id, e.event_seq, e.occurred_at,
       (e.payload->'note'->>'version')::numeric::integer AS version,
       e.payload->'note'->>'kind' AS kind,
       e.payload->'note'->>'topic' AS topic,
       (e.payload->'note'->>'importance')::numeric::real AS importance,
       coalesce(e.payload->'note'->'anchor' = 'true', false) AS anchor,
       e.context_id,
       coalesce(e.payload->'note'->>'lifetime' = 'session', false) AS session,
       sha256(convert_to(concat_ws(E'\n', e.payload->'note'->>'kind',
           CASE WHEN e.payload->'note'->>'lifetime' = 'session' THEN coalesce(e.context_id, '') ELSE '' END,
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
COMMENT ON VIEW myria.note_versions IS 'Every version of every note, one row per event.';

-- The fold itself, as a function of the log and of `withdrawn`, which is one too: the newest version of each note, in the
-- scope of its first.
CREATE VIEW myria.notes_of_log WITH (security_invoker) AS
SELECT DISTINCT ON (v.tenant_id, v.note_id)
       v.tenant_id, v.note_id, v.scope_id, v.event_seq, v.first_seq, v.version, v.kind, v.topic, v.importance, v.anchor,
       v.context_id, v.session, v.digest, v.created_at, v.occurred_at AS changed_at,
       NOT coalesce((SELECT w.reason <> 'restored' FROM myria.withdrawn w
                     WHERE w.tenant_id = v.tenant_id AND w.event_seq = v.event_seq
                     ORDER BY w.by_event_seq DESC LIMIT 1), false) AS live
FROM (
    SELECT u.*, first_value(u.event_seq) OVER w AS first_seq, first_value(u.scope_id) OVER w AS first_scope,
           first_value(u.occurred_at) OVER w AS created_at
    FROM myria.note_versions u
    WINDOW w AS (PARTITION BY u.tenant_id, u.note_id ORDER BY u.event_seq)
) v
WHERE v.scope_id = v.first_scope
ORDER BY v.tenant_id, v.note_id, v.event_seq DESC;
COMMENT ON VIEW myria.notes_of_log IS 'The rows of notes as the log gives them.';
