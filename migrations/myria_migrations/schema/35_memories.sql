-- Memories, which are notes that agents keep over REST, and registrations: the agents and sessions they belong to.

CREATE TABLE myria.memories (
    tenant_id   text COLLATE "C" NOT NULL,
    note_id     text COLLATE "C" NOT NULL,
    scope_id    bigint NOT NULL,
    event_seq   bigint NOT NULL,
    first_seq   bigint NOT NULL,
    created_at  timestamptz NOT NULL,
    agent_id    text COLLATE "C" NOT NULL,
    context_id  text COLLATE "C",
    memory_type text COLLATE "C" NOT NULL,
    event_type  text COLLATE "C" NOT NULL,
    tags        text[] COLLATE "C" NOT NULL,
    importance  real,
    dedup_key   text COLLATE "C",
    PRIMARY KEY (tenant_id, note_id)
);
COMMENT ON TABLE myria.memories IS 'By what memories are listed; each is a note, whose text is the payload of its event.';
COMMENT ON COLUMN myria.memories.event_seq IS 'The event of the current version.';
COMMENT ON COLUMN myria.memories.first_seq IS 'The event of the first version.';
COMMENT ON COLUMN myria.memories.importance IS 'As its writer gave it; NULL where none was given.';
COMMENT ON COLUMN myria.memories.dedup_key IS 'Whoever keeps another memory with it within the window keeps the same; NULL once it was amended.';
CREATE INDEX memories_time ON myria.memories (tenant_id, created_at, first_seq);
CREATE INDEX memories_agent ON myria.memories (tenant_id, agent_id, created_at, first_seq);
CREATE INDEX memories_session ON myria.memories (tenant_id, context_id, created_at, first_seq) WHERE context_id IS NOT NULL;
-- Keys are told apart by what differs first.
CREATE INDEX memories_dedup ON myria.memories (dedup_key, tenant_id, created_at) WHERE dedup_key IS NOT NULL;

CREATE TABLE myria.registrations (
    tenant_id  text COLLATE "C" NOT NULL,
    kind       text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    scope_id   bigint NOT NULL,
    event_seq  bigint NOT NULL,
    first_seq  bigint NOT NULL,
    version    integer NOT NULL,
    name       text COLLATE "C",
    agent_id   text COLLATE "C",
    status     text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, kind, id)
);
COMMENT ON TABLE myria.registrations IS 'The agents and sessions of REST as their newest event says; what it says beside this is its payload.';
COMMENT ON COLUMN myria.registrations.kind IS 'agent or session.';
COMMENT ON COLUMN myria.registrations.name IS 'Of an agent: no two of a scope have the same.';
COMMENT ON COLUMN myria.registrations.agent_id IS 'Of a session: the agent that works in it.';
CREATE UNIQUE INDEX registrations_name ON myria.registrations (tenant_id, scope_id, kind, name) WHERE status <> 'deleted' AND name IS NOT NULL;
CREATE INDEX registrations_newest ON myria.registrations (tenant_id, scope_id, kind, first_seq);
CREATE INDEX registrations_agent ON myria.registrations (tenant_id, agent_id, first_seq) WHERE agent_id IS NOT NULL;

-- The folds themselves, as functions of the log.
CREATE VIEW myria.memory_versions WITH (security_invoker) AS
SELECT v.tenant_id, v.note_id, v.scope_id, v.event_seq, v.occurred_at, said.memory->>'agent_id' AS agent_id, v.context_id,
       v.kind AS memory_type, said.memory->>'event_type' AS event_type,
       ARRAY(SELECT jsonb_array_elements_text(said.memory->'tags')) COLLATE "C" AS tags,
       (said.memory->>'importance')::numeric::real AS importance, said.memory->>'dedup_key' AS dedup_key
FROM myria.note_versions v
JOIN myria.events e ON e.tenant_id = v.tenant_id AND e.event_seq = v.event_seq
CROSS JOIN LATERAL (SELECT e.payload->'note'->'memory') AS said (memory)
WHERE jsonb_typeof(said.memory->'agent_id') = 'string' AND jsonb_typeof(said.memory->'event_type') = 'string'
  AND jsonb_typeof(said.memory->'tags') = 'array'
  AND coalesce(jsonb_typeof(said.memory->'importance') = 'number', true);
COMMENT ON VIEW myria.memory_versions IS 'Every version of every memory, one row per event.';

CREATE VIEW myria.memories_of_log WITH (security_invoker) AS
SELECT DISTINCT ON (m.tenant_id, m.note_id)
       m.tenant_id, m.note_id, m.scope_id, m.event_seq, n.first_seq, n.created_at, m.agent_id, m.context_id, m.memory_type,
       m.event_type, m.tags, m.importance, m.dedup_key
FROM myria.memory_versions m
JOIN myria.notes n ON n.tenant_id = m.tenant_id AND n.note_id = m.note_id AND n.scope_id = m.scope_id
ORDER BY m.tenant_id, m.note_id, m.event_seq DESC;

CREATE VIEW myria.registration_versions WITH (security_invoker) AS
SELECT e.tenant_id, said.entry->>'kind' AS kind, said.entry->>'id' AS id, e.scope_id, e.event_seq,
       (said.entry->>'version')::numeric::integer AS version, said.entry->>'name' AS name,
       said.entry->>'agent_id' AS agent_id, said.entry->>'status' AS status, e.occurred_at
FROM myria.events e
CROSS JOIN LATERAL (SELECT e.payload->'registration') AS said (entry)
WHERE e.type = 'myria.registration' AND coalesce(e.internal, false) AND e.channel = 'registry'
  AND jsonb_typeof(said.entry->'id') = 'string' AND said.entry->>'kind' IN ('agent', 'session')
  AND jsonb_typeof(said.entry->'status') = 'string'
  AND CASE WHEN jsonb_typeof(said.entry->'version') = 'number'
           THEN (said.entry->>'version')::numeric BETWEEN 1 AND 1000000000 ELSE false END;
COMMENT ON VIEW myria.registration_versions IS 'Every version of every registration, one row per event.';

CREATE VIEW myria.registrations_of_log WITH (security_invoker) AS
SELECT DISTINCT ON (v.tenant_id, v.kind, v.id)
       v.tenant_id, v.kind, v.id, v.scope_id, v.event_seq, v.first_seq, v.version, v.name, v.agent_id, v.status,
       v.created_at, v.occurred_at AS updated_at
FROM (
    SELECT u.*, first_value(u.event_seq) OVER w AS first_seq, first_value(u.scope_id) OVER w AS first_scope,
           first_value(u.occurred_at) OVER w AS created_at
    FROM myria.registration_versions u
    WINDOW w AS (PARTITION BY u.tenant_id, u.kind, u.id ORDER BY u.event_seq)
) v
WHERE v.scope_id = v.first_scope
ORDER BY v.tenant_id, v.kind, v.id, v.event_seq DESC;
