-- Notes: what is kept on purpose over any API, its sessions, links, ratings and use, and maintenance's queues.
--
-- A view named *_of_log gives the rows of its table as a function of the log: appends fold the same rows, and `myria verify`
-- compares all of them. What is malformed in the log is no row.

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
    lasts_days integer,
    agent_id   text COLLATE "C" NOT NULL,
    event_type text COLLATE "C",
    tags       text[] COLLATE "C" NOT NULL,
    given_importance real,
    dedup_key  text COLLATE "C",
    review     text COLLATE "C" CHECK (review IN ('held', 'refused', 'approved')),
    review_seq bigint,
    PRIMARY KEY (tenant_id, note_id)
);
COMMENT ON TABLE myria.notes IS 'The current version of each statement that any API keeps: notes, facts of turns, memories of REST. What it says is the payload of its event.';
COMMENT ON COLUMN myria.notes.event_seq IS 'The event of the current version.';
COMMENT ON COLUMN myria.notes.first_seq IS 'The event of the first version.';
COMMENT ON COLUMN myria.notes.context_id IS 'The session in which it was made, where one was named.';
COMMENT ON COLUMN myria.notes.session IS 'Whether it ends with its session, and is recalled in it alone.';
COMMENT ON COLUMN myria.notes.digest IS 'SHA-256 of kind, session and redacted text: no two live notes of a scope have the same.';
COMMENT ON COLUMN myria.notes.live IS 'False once its current version is withdrawn.';
COMMENT ON COLUMN myria.notes.lasts_days IS 'For how many days in UTC it holds, that on which it was said being the first; NULL: as its kind says.';
COMMENT ON COLUMN myria.notes.agent_id IS 'Who keeps it, as REST names agents.';
COMMENT ON COLUMN myria.notes.event_type IS 'Of a memory of REST what its writer calls it; NULL of all others, whose kind stands for it.';
COMMENT ON COLUMN myria.notes.tags IS 'Of a memory of REST its tags, of others their keywords.';
COMMENT ON COLUMN myria.notes.given_importance IS 'As its writer gave it to REST; NULL where none was given.';
COMMENT ON COLUMN myria.notes.dedup_key IS 'Whoever keeps another memory with it within the window keeps the same.';
COMMENT ON COLUMN myria.notes.review IS 'Of a note that the policy of review held back: held, refused or approved; NULL of all others, and once something else became of it.';
COMMENT ON COLUMN myria.notes.review_seq IS 'The event that made it so.';
CREATE UNIQUE INDEX notes_event ON myria.notes (tenant_id, event_seq);
CREATE INDEX notes_session ON myria.notes (tenant_id, scope_id, context_id, event_seq DESC) WHERE live AND context_id IS NOT NULL;
CREATE INDEX notes_anchor ON myria.notes (tenant_id, scope_id, importance DESC, event_seq DESC) WHERE live AND anchor;
CREATE INDEX notes_reflected ON myria.notes (tenant_id, scope_id, event_seq DESC) WHERE live AND topic = 'session_reflect';
-- REST lists by time, all or those of an agent. What ends with its session is listed in it alone.
CREATE INDEX notes_made ON myria.notes (tenant_id, scope_id, created_at, first_seq) WHERE live AND NOT session;
CREATE INDEX notes_agent ON myria.notes (tenant_id, agent_id, scope_id, created_at, first_seq) WHERE live;
-- Keys are told apart by what differs first.
CREATE INDEX notes_dedup ON myria.notes (dedup_key, tenant_id, created_at) WHERE dedup_key IS NOT NULL;
-- What agents keep over REST alone (kinds episodic, session, entity) may say the same twice, and no context shows it.
CREATE UNIQUE INDEX notes_once ON myria.notes (tenant_id, scope_id, digest)
    WHERE live AND kind NOT IN ('episodic', 'session', 'entity');
-- Of what waits for a review, too, nothing is kept twice.
CREATE UNIQUE INDEX notes_held_once ON myria.notes (tenant_id, scope_id, digest)
    WHERE review = 'held' AND kind NOT IN ('episodic', 'session', 'entity');
CREATE INDEX notes_held_context ON myria.notes (tenant_id, scope_id, context_id) WHERE review = 'held' AND context_id IS NOT NULL;
CREATE INDEX notes_held ON myria.notes (tenant_id, review_seq) WHERE review = 'held';
CREATE INDEX notes_decided ON myria.notes (tenant_id, review_seq) WHERE review IN ('refused', 'approved');
CREATE INDEX notes_kind ON myria.notes (tenant_id, scope_id, kind, importance DESC, event_seq DESC)
    WHERE live AND kind NOT IN ('episodic', 'session', 'entity');
-- Ascending, as notes come in: pages are filled, and the newest are read backwards.
CREATE INDEX notes_newest ON myria.notes (tenant_id, scope_id, event_seq) WHERE live;

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
    ends_at   timestamptz,
    PRIMARY KEY (tenant_id, note_id)
);
COMMENT ON TABLE myria.note_looks IS 'When maintenance looks at each live note next, and what it was when it was looked at last.';
COMMENT ON COLUMN myria.note_looks.phase IS 'Its tier then, stale for a cold one that has not been used for long; NULL: nobody has looked yet.';
COMMENT ON COLUMN myria.note_looks.likeness IS 'SHA-256 of kind, session and text without its case, spaces and final stop.';
COMMENT ON COLUMN myria.note_looks.ends_at IS 'No later than the end of a session note, and the end of another if nobody uses it; NULL: never.';
CREATE INDEX note_looks_due ON myria.note_looks (tenant_id, look_at);
CREATE INDEX note_looks_scope ON myria.note_looks (tenant_id, scope_id, look_at);
CREATE INDEX note_looks_alike ON myria.note_looks (tenant_id, scope_id, likeness) WHERE likeness IS NOT NULL;
CREATE INDEX note_looks_stale ON myria.note_looks (tenant_id, scope_id, note_id) WHERE phase = 'stale';
CREATE INDEX note_looks_ends ON myria.note_looks (tenant_id, ends_at) WHERE ends_at IS NOT NULL;

CREATE TABLE myria.note_usage (
    tenant_id text COLLATE "C" NOT NULL,
    note_id   text COLLATE "C" NOT NULL,
    uses      bigint NOT NULL,
    used_at   timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, note_id)
);
COMMENT ON TABLE myria.note_usage IS 'How often each note was recalled, and when last. It is no part of the log: counts of a process that ends suddenly are lost.';

CREATE TABLE myria.notes_shown (
    tenant_id   text COLLATE "C" NOT NULL,
    session_key bytea NOT NULL,
    note_ids    text[] COLLATE "C" NOT NULL,
    shown_at    timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, session_key)
);
COMMENT ON TABLE myria.notes_shown IS 'Which notes context showed in a session, for a day, so that recall leaves them out there. It is no part of the log: what is lost is shown again.';
CREATE INDEX notes_shown_oldest ON myria.notes_shown (tenant_id, shown_at);

CREATE TABLE myria.note_relations (
    tenant_id    text COLLATE "C" NOT NULL,
    from_id      text COLLATE "C" NOT NULL,
    to_id        text COLLATE "C" NOT NULL,
    relation     text COLLATE "C" NOT NULL,
    event_seq    bigint NOT NULL,
    replaces_seq bigint,
    PRIMARY KEY (tenant_id, from_id, to_id, relation)
);
COMMENT ON TABLE myria.note_relations IS 'The newest link of each type from one note to another; who may see both notes may see it.';
COMMENT ON COLUMN myria.note_relations.event_seq IS 'The event that says so.';
COMMENT ON COLUMN myria.note_relations.replaces_seq IS 'The newest event of this type that takes the place of all earlier links of the pair.';
CREATE INDEX note_relations_to ON myria.note_relations (tenant_id, to_id);
CREATE INDEX note_relations_contradict ON myria.note_relations (tenant_id, event_seq DESC) WHERE relation = 'contradicts';

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
COMMENT ON TABLE myria.note_evaluations_due IS 'Notes that wait for a rating, and when they are tried next.';
CREATE INDEX note_evaluations_due_at ON myria.note_evaluations_due (tenant_id, due_at);

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
COMMENT ON TABLE myria.tool_feedback IS 'What agents say of answers of tools; their words are in the events.';
CREATE INDEX tool_feedback_newest ON myria.tool_feedback (tenant_id, said_at DESC, event_seq DESC);

-- Two memories may say the same: what is a repeat, the key and window of each decide.
CREATE VIEW myria.note_versions WITH (security_invoker) AS
SELECT e.tenant_id, said.note->>'id' AS note_id, e.scope_id, e.event_seq, e.occurred_at,
       (said.note->>'version')::numeric::integer AS version,
       said.note->>'kind' AS kind,
       said.note->>'topic' AS topic,
       (said.note->>'importance')::numeric::real AS importance,
       coalesce(said.note->'anchor' = 'true', false) AS anchor,
       e.context_id,
       coalesce(said.note->>'lifetime' = 'session', false) AS session,
       sha256(convert_to(concat_ws(E'\n', said.note->>'kind',
           CASE WHEN said.note->>'kind' IN ('fact_l0', 'fact_l1', 'fact_l2') OR said.note ? 'memory' THEN said.note->>'id'
                WHEN said.note->>'lifetime' = 'session' THEN coalesce(e.context_id, '') ELSE '' END,
           e.payload->>'text'), 'UTF8')) AS digest,
       CASE WHEN jsonb_typeof(said.note->'lasts_days') = 'number'
            THEN CASE WHEN (said.note->>'lasts_days')::numeric BETWEEN 1 AND 36500
                      THEN (said.note->>'lasts_days')::numeric::integer END
       END AS lasts_days,
       coalesce(rest.memory->>'agent_id', nullif(e.payload->>'speaker', ''), 'default') AS agent_id,
       rest.memory->>'event_type' AS event_type,
       CASE jsonb_typeof(coalesce(rest.memory->'tags', said.note->'keywords')) WHEN 'array'
            THEN ARRAY(SELECT jsonb_array_elements_text(coalesce(rest.memory->'tags', said.note->'keywords')))
            ELSE '{}' END COLLATE "C" AS tags,
       (coalesce(rest.memory, said.note)->>'importance')::numeric::real AS given_importance,
       rest.memory->>'dedup_key' AS dedup_key,
       said.note ? 'held' AS held
FROM myria.events e
CROSS JOIN LATERAL (SELECT e.payload->'note') AS said (note)
CROSS JOIN LATERAL (
    SELECT CASE WHEN jsonb_typeof(said.note->'memory'->'agent_id') = 'string'
                 AND jsonb_typeof(said.note->'memory'->'event_type') = 'string'
                 AND jsonb_typeof(said.note->'memory'->'tags') = 'array'
                 AND coalesce(jsonb_typeof(said.note->'memory'->'importance') = 'number', true)
                THEN said.note->'memory' END
) AS rest (memory)
WHERE e.type = 'myria.note' AND e.channel = 'notes' AND NOT e.internal
  AND CASE WHEN jsonb_typeof(said.note->'id') = 'string' AND jsonb_typeof(said.note->'kind') = 'string'
            AND jsonb_typeof(said.note->'topic') = 'string' AND jsonb_typeof(e.payload->'text') = 'string'
            AND jsonb_typeof(said.note->'version') = 'number'
            AND jsonb_typeof(said.note->'importance') = 'number'
           THEN (said.note->>'version')::numeric BETWEEN 1 AND 1000000000
                AND (said.note->>'importance')::numeric BETWEEN 0 AND 1
           ELSE false END;
COMMENT ON VIEW myria.note_versions IS 'Every version of every note, one row per event.';

CREATE VIEW myria.notes_of_log WITH (security_invoker) AS
SELECT DISTINCT ON (v.tenant_id, v.note_id)
       v.tenant_id, v.note_id, v.scope_id, v.event_seq, v.first_seq, v.version, v.kind, v.topic, v.importance, v.anchor,
       v.context_id, v.session, v.digest, v.created_at, v.occurred_at AS changed_at,
       coalesce(w.reasons[1] = 'restored', NOT v.held) AS live,
       v.lasts_days, v.agent_id, v.event_type, v.tags, v.given_importance, v.dedup_key,
       w.review, CASE WHEN w.review IS NOT NULL THEN coalesce(w.by_event_seq, v.event_seq) END AS review_seq
FROM (
    SELECT u.*, first_value(u.event_seq) OVER w AS first_seq, first_value(u.scope_id) OVER w AS first_scope,
           first_value(u.occurred_at) OVER w AS created_at
    FROM myria.note_versions u
    WINDOW w AS (PARTITION BY u.tenant_id, u.note_id ORDER BY u.event_seq)
) v
CROSS JOIN LATERAL (
    SELECT x.reasons, x.by_event_seq, CASE
               WHEN x.reasons IS NULL THEN CASE WHEN v.held THEN 'held' END
               WHEN x.reasons[1] IN ('held', 'refused') THEN x.reasons[1]
               WHEN x.reasons[1] = 'restored' AND x.reasons[2] IN ('held', 'refused') THEN 'approved' END AS review
    FROM (
        SELECT array_agg(y.reason ORDER BY y.by_event_seq DESC) AS reasons, max(y.by_event_seq) AS by_event_seq
        FROM (SELECT z.reason, z.by_event_seq FROM myria.withdrawn z
              WHERE z.tenant_id = v.tenant_id AND z.event_seq = v.event_seq
              ORDER BY z.by_event_seq DESC LIMIT 2) y
    ) x
) w
WHERE v.scope_id = v.first_scope
ORDER BY v.tenant_id, v.note_id, v.event_seq DESC;

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

-- What says for how many days it holds ends then, as a note of a session ends with that.
CREATE VIEW myria.standing_notes WITH (security_invoker) AS
SELECT n.tenant_id, n.note_id, n.scope_id, n.event_seq, n.first_seq, n.version, n.kind, n.topic, n.importance, n.anchor,
       n.context_id, n.session, n.digest, n.created_at, n.changed_at, n.live,
       CASE WHEN n.review IS DISTINCT FROM 'approved' THEN newest.reason END AS reason,
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
COMMENT ON VIEW myria.standing_notes IS 'Notes with what withdrawals say of their current version (nothing of one that a review let in), when they end or have ended (with their session, or by a number of days that they name; NULL for others), and how they were used.';

-- The fold itself, as a function of the log. What is no link in full is none.
CREATE VIEW myria.note_relations_of_log WITH (security_invoker) AS
SELECT e.tenant_id, said.link->>'from' AS from_id, said.link->>'to' AS to_id, said.link->>'relation' AS relation,
       max(e.event_seq) AS event_seq, max(e.event_seq) FILTER (WHERE said.link->'replaces' = 'true') AS replaces_seq
FROM myria.events e
CROSS JOIN LATERAL (SELECT e.payload->'link' AS link) AS said
WHERE e.type = 'myria.link' AND e.internal
  AND jsonb_typeof(said.link->'from') = 'string' AND jsonb_typeof(said.link->'to') = 'string'
  AND jsonb_typeof(said.link->'relation') = 'string'
GROUP BY e.tenant_id, said.link->>'from', said.link->>'to', said.link->>'relation';

-- What stands: in whichever order links and what replaces them are folded.
CREATE VIEW myria.standing_links WITH (security_invoker) AS
SELECT r.tenant_id, r.from_id, r.to_id, r.relation, r.event_seq FROM myria.note_relations r
WHERE NOT EXISTS (
    SELECT FROM myria.note_relations o
    WHERE o.tenant_id = r.tenant_id AND o.from_id = r.from_id AND o.to_id = r.to_id AND o.replaces_seq > r.event_seq);
COMMENT ON VIEW myria.standing_links IS 'Links that no later one has replaced: of a pair one of each type.';

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

-- The fold itself, as a function of the log. What is no feedback in full is none.
CREATE VIEW myria.tool_feedback_of_log WITH (security_invoker) AS
SELECT e.tenant_id, e.event_seq, e.scope_id, said.of->>'tool' AS tool, said.of->'relevant' = 'true' AS relevant,
       said.of->'sufficient' = 'true' AS sufficient, e.occurred_at AS said_at
FROM myria.events e
CROSS JOIN LATERAL (SELECT e.payload->'feedback') AS said (of)
WHERE e.type = 'myria.feedback' AND e.channel = 'myria' AND e.internal AND jsonb_typeof(said.of->'tool') = 'string'
  AND jsonb_typeof(said.of->'relevant') = 'boolean' AND jsonb_typeof(said.of->'sufficient') = 'boolean';
