-- Registrations: the agents and sessions of REST.

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

-- The fold itself, as a function of the log.
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
