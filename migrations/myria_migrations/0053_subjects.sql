-- Subjects: the second hierarchy above the leaves of a scope, in tables of its own.
--
-- Old pods go on working: they read none of this, and their snapshots have no rows here. A lineage without a row of a
-- scope has trees of time only.

CREATE TABLE myria.subject_nodes (
    tenant_id       text COLLATE "C" NOT NULL,
    rendering_id    bytea NOT NULL,
    scope_id        bigint NOT NULL,
    node_id         bytea NOT NULL,
    level           smallint NOT NULL,
    topic_id        text COLLATE "C" NOT NULL,
    anchor_seq      bigint NOT NULL,
    anchor_event_id text COLLATE "C" NOT NULL,
    label           text NOT NULL,
    summary         text NOT NULL,
    metadata        jsonb NOT NULL,
    children        bytea[] NOT NULL,
    is_subject      boolean NOT NULL,
    events          integer NOT NULL,
    leaves          integer NOT NULL,
    subjects        integer NOT NULL,
    key_at          timestamptz NOT NULL,
    key_digest      bytea NOT NULL,
    key_event_id    text COLLATE "C" NOT NULL,
    first_at        timestamptz NOT NULL,
    last_at         timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, rendering_id)
);
CREATE INDEX subject_nodes_scope ON myria.subject_nodes (tenant_id, scope_id);
COMMENT ON TABLE myria.subject_nodes IS 'Immutable, content-addressed: subjects, divisions of large ones and groups of them, over leaves in renderings.';
COMMENT ON COLUMN myria.subject_nodes.events IS 'Of all leaves beneath; a leaf counts under each of its subjects.';

CREATE TABLE myria.subject_roots (
    tenant_id         text COLLATE "C" NOT NULL,
    scope_id          bigint NOT NULL,
    number            integer NOT NULL,
    root_rendering_id bytea,
    since             integer NOT NULL,
    PRIMARY KEY (tenant_id, scope_id, number)
);
COMMENT ON TABLE myria.subject_roots IS 'A row only where a build changed the subjects of a scope: the newest within a lineage counts.';
COMMENT ON COLUMN myria.subject_roots.root_rendering_id IS 'NULL where nothing of the scope is a subject.';
COMMENT ON COLUMN myria.subject_roots.since IS 'The number under which the subjects were planned anew: older rows of subject_holders do not count.';

CREATE TABLE myria.subject_holders (
    tenant_id text COLLATE "C" NOT NULL,
    scope_id  bigint NOT NULL,
    key       bytea NOT NULL,
    number    integer NOT NULL,
    holders   bytea NOT NULL,
    PRIMARY KEY (tenant_id, scope_id, key, number)
);
COMMENT ON TABLE myria.subject_holders IS 'Which leaves of a scope hold a key; of a lineage the newest row counts.';
COMMENT ON COLUMN myria.subject_holders.key IS 'The first 16 bytes of the SHA-256 of a key.';

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['subject_nodes', 'subject_roots', 'subject_holders'] LOOP
        EXECUTE format('ALTER TABLE myria.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE myria.%I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format($p$CREATE POLICY tenant_named ON myria.%I
            USING (tenant_id = current_setting('myria.tenant', true) OR current_setting('myria.tenant', true) = '*')$p$, name);
        EXECUTE format('CREATE TRIGGER refuse_while_deleted BEFORE INSERT ON myria.%I
            FOR EACH STATEMENT EXECUTE FUNCTION myria.refuse_while_deleted()', name);
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION myria.erased_places() RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
    SELECT ARRAY['events', 'renderings', 'search_blocks', 'subject_nodes', 'subject_roots', 'subject_holders', 'notes',
        'note_looks', 'note_usage', 'note_links', 'note_evaluations', 'note_evaluations_due', 'memories', 'registrations',
        'turns', 'turn_sessions', 'turn_extractions_due', 'turn_shadows', 'tool_feedback', 'sessions', 'unit_plans',
        'llm_calls', 'builds', 'build_tasks', 'build_units', 'snapshots', 'rebuild_requests', 'pointer_moves', 'tenants',
        'access_log', 'call_log', 'erasures', 'erased_words']
$$;
