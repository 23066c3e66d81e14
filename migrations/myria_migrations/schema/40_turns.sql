-- Turns: what a host hands over before and after each one, and what is still to be found in them.

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
COMMENT ON TABLE myria.turns IS 'The turns that were stored, each once.';
COMMENT ON COLUMN myria.turns.owner IS 'SHA-256 of the participants of the credential whose session it is, without the user.';
COMMENT ON COLUMN myria.turns.event_seq IS 'The mark that says that the turn is complete.';
COMMENT ON COLUMN myria.turns.items IS 'The events of what went in and came out, in order.';
CREATE UNIQUE INDEX turns_newest ON myria.turns (tenant_id, owner, context_id, event_seq);

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
COMMENT ON TABLE myria.turn_extractions_due IS 'Turns in which a model is to look for facts, and when it is tried next.';
CREATE INDEX turn_extractions_due_at ON myria.turn_extractions_due (tenant_id, due_at);

-- Figures alone: nothing of what was said, on either side.
CREATE TABLE myria.turn_shadows (
    tenant_id   text COLLATE "C" NOT NULL,
    owner       bytea NOT NULL,
    context_id  text COLLATE "C" NOT NULL,
    turn_id     text COLLATE "C" NOT NULL,
    call        text COLLATE "C" NOT NULL CHECK (call IN ('before', 'after')),
    aspect      text COLLATE "C" NOT NULL CHECK (aspect IN ('facts', 'items', 'tokens', 'all')),
    same        boolean NOT NULL,
    ours        bigint NOT NULL,
    theirs      bigint NOT NULL,
    missing     bigint NOT NULL,
    extra       bigint NOT NULL,
    compared_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, owner, context_id, turn_id, call, aspect)
);
COMMENT ON TABLE myria.turn_shadows IS 'How answers compared with what hosts computed themselves, in shadow mode.';
COMMENT ON COLUMN myria.turn_shadows.aspect IS 'What was compared; all: the result of the host could not be read.';
COMMENT ON COLUMN myria.turn_shadows.missing IS 'What the host has and the answer has not.';
COMMENT ON COLUMN myria.turn_shadows.extra IS 'What the answer has and the host has not.';
CREATE INDEX turn_shadows_newest ON myria.turn_shadows (tenant_id, compared_at);

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

CREATE VIEW myria.turn_sessions_of_log WITH (security_invoker) AS
SELECT t.tenant_id, t.owner, t.context_id, t.scope_id, min(t.event_seq) AS first_seq, max(t.event_seq) AS last_seq,
       count(*) AS turns, sum(cardinality(t.items))::bigint AS items
FROM myria.turns_of_log t
GROUP BY t.tenant_id, t.owner, t.context_id, t.scope_id;
