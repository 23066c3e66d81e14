-- Sessions: contexts with a beginning and an end, folded from the log; and when maintenance looks at a note next.
--
-- Old pods go on working. A note that one of them keeps in a session does not prolong it: the session's notes may expire
-- early, until the last old pod is gone.

CREATE TABLE myria.sessions (
    tenant_id  text COLLATE "C" NOT NULL,
    scope_id   bigint NOT NULL,
    context_id text COLLATE "C" NOT NULL,
    begun_seq  bigint NOT NULL,
    last_seq   bigint NOT NULL,
    last_at    timestamptz NOT NULL,
    idle_s     integer NOT NULL,
    ended_seq  bigint,
    PRIMARY KEY (tenant_id, scope_id, context_id)
);
COMMENT ON TABLE myria.sessions IS 'The newest run of each session, which is a context within a scope: it begins with a note after an end or a pause, and ends by an event or idle.';
COMMENT ON COLUMN myria.sessions.begun_seq IS 'The first event of this run: session notes of earlier runs have expired.';
COMMENT ON COLUMN myria.sessions.last_at IS 'The latest time of its events.';
COMMENT ON COLUMN myria.sessions.idle_s IS 'Seconds after last_at at which it is over by itself, as its last event says.';
COMMENT ON COLUMN myria.sessions.ended_seq IS 'The event that ended it; NULL while nothing did.';

-- A queue, and no truth: whoever empties it loses nothing that a look at every note does not bring back.
CREATE TABLE myria.note_looks (
    tenant_id text COLLATE "C" NOT NULL,
    note_id   text COLLATE "C" NOT NULL,
    scope_id  bigint NOT NULL,
    look_at   timestamptz NOT NULL,
    phase     text COLLATE "C" CHECK (phase IN ('session', 'hot', 'warm', 'cold', 'stale', 'permanent')),
    likeness  bytea,
    PRIMARY KEY (tenant_id, note_id)
);
CREATE INDEX note_looks_due ON myria.note_looks (tenant_id, look_at);
CREATE INDEX note_looks_scope ON myria.note_looks (tenant_id, scope_id, look_at);
CREATE INDEX note_looks_alike ON myria.note_looks (tenant_id, scope_id, likeness) WHERE likeness IS NOT NULL;
CREATE INDEX note_looks_stale ON myria.note_looks (tenant_id, scope_id, note_id) WHERE phase = 'stale';
COMMENT ON TABLE myria.note_looks IS 'When maintenance looks at each live note next, and what it was when it was looked at last.';
COMMENT ON COLUMN myria.note_looks.phase IS 'Its tier then, stale for a cold one that has not been used for long; NULL: nobody has looked yet.';
COMMENT ON COLUMN myria.note_looks.likeness IS 'SHA-256 of kind, session and text without its case, spaces and final stop.';

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['sessions', 'note_looks'] LOOP
        EXECUTE format('ALTER TABLE myria.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE myria.%I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format($p$CREATE POLICY tenant_named ON myria.%I
            USING (tenant_id = current_setting('myria.tenant', true) OR current_setting('myria.tenant', true) = '*')$p$, name);
        EXECUTE format('CREATE TRIGGER refuse_while_deleted BEFORE INSERT ON myria.%I
            FOR EACH STATEMENT EXECUTE FUNCTION myria.refuse_while_deleted()', name);
    END LOOP;
END $$;

CREATE INDEX notes_session ON myria.notes (tenant_id, scope_id, context_id, event_seq DESC) WHERE live AND context_id IS NOT NULL;
CREATE INDEX notes_anchor ON myria.notes (tenant_id, scope_id, importance DESC, event_seq DESC) WHERE live AND anchor;
CREATE INDEX notes_newest ON myria.notes (tenant_id, scope_id, event_seq DESC) WHERE live;

-- What is kept, changed or restored is looked at with the next run.
CREATE FUNCTION myria.look_at_note() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO myria.note_looks AS k (tenant_id, note_id, scope_id, look_at)
    VALUES (NEW.tenant_id, NEW.note_id, NEW.scope_id, NEW.changed_at)
    ON CONFLICT (tenant_id, note_id) DO UPDATE SET look_at = EXCLUDED.look_at, phase = NULL, likeness = NULL;
    RETURN NULL;
END $$;
CREATE TRIGGER look_at_note AFTER INSERT OR UPDATE ON myria.notes
    FOR EACH ROW WHEN (NEW.live) EXECUTE FUNCTION myria.look_at_note();

SELECT set_config('myria.tenant', '*', true);
INSERT INTO myria.note_looks (tenant_id, note_id, scope_id, look_at)
SELECT n.tenant_id, n.note_id, n.scope_id, n.changed_at FROM myria.notes n WHERE n.live;

-- The events of sessions: notes that name a context, and events that say so of themselves. A session whose event does
-- not say how long it may be idle may be so for an hour.
CREATE VIEW myria.session_events WITH (security_invoker) AS
SELECT e.tenant_id, e.scope_id, e.context_id, e.event_seq, e.occurred_at,
       CASE WHEN jsonb_typeof(said.about->'idle_s') = 'number'
            THEN least(greatest((said.about->>'idle_s')::numeric, 1), 1000000000)::integer ELSE 3600 END AS idle_s,
       e.type = 'myria.session' AND said.about->>'state' = 'ended' AS ends
FROM myria.events e
CROSS JOIN LATERAL (SELECT CASE WHEN e.type = 'myria.session' THEN e.payload->'session' ELSE e.payload->'note' END) AS said (about)
WHERE e.context_id IS NOT NULL AND jsonb_typeof(said.about) = 'object'
  AND ((e.type = 'myria.note' AND e.channel = 'notes' AND NOT e.internal)
       OR (e.type = 'myria.session' AND e.channel = 'myria' AND e.internal AND said.about->>'state' IN ('begun', 'ended')));
COMMENT ON VIEW myria.session_events IS 'The events from which sessions are folded.';

-- The fold itself, as a function of the log. An event begins a run where the one before ended the session, or where it
-- comes after the session has been idle for as long as the one before allows.
CREATE VIEW myria.sessions_of_log WITH (security_invoker) AS
SELECT DISTINCT ON (r.tenant_id, r.scope_id, r.context_id)
       r.tenant_id, r.scope_id, r.context_id, max(r.event_seq) FILTER (WHERE r.begins) OVER run AS begun_seq,
       r.event_seq AS last_seq, r.last_at, r.idle_s, CASE WHEN r.ends THEN r.event_seq END AS ended_seq
FROM (
    SELECT s.*, max(s.occurred_at) OVER w AS last_at,
           coalesce(lag(s.ends) OVER w
                    OR s.occurred_at >= max(s.occurred_at) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
                                        + lag(s.idle_s) OVER w * interval '1 second', true) AS begins
    FROM myria.session_events s
    WINDOW w AS (PARTITION BY s.tenant_id, s.scope_id, s.context_id ORDER BY s.event_seq)
) r
WINDOW run AS (PARTITION BY r.tenant_id, r.scope_id, r.context_id ORDER BY r.event_seq)
ORDER BY r.tenant_id, r.scope_id, r.context_id, r.event_seq DESC;
COMMENT ON VIEW myria.sessions_of_log IS 'The rows of sessions as the log gives them.';

INSERT INTO myria.sessions SELECT g.* FROM myria.sessions_of_log g;
