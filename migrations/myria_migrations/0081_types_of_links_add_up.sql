-- Two notes may be linked by several types at once: a link of another type no longer replaces the one before.
--
-- Old pods go on working: they read and write note_links, the newest link of each pair, and a trigger brings what they
-- link here. New pods write both, so that old ones can come back; note_links goes with a later release.

CREATE TABLE myria.note_relations (
    tenant_id    text COLLATE "C" NOT NULL,
    from_id      text COLLATE "C" NOT NULL,
    to_id        text COLLATE "C" NOT NULL,
    relation     text COLLATE "C" NOT NULL,
    event_seq    bigint NOT NULL,
    replaces_seq bigint,
    PRIMARY KEY (tenant_id, from_id, to_id, relation)
);
CREATE INDEX note_relations_to ON myria.note_relations (tenant_id, to_id);
CREATE INDEX note_relations_contradict ON myria.note_relations (tenant_id, event_seq DESC) WHERE relation = 'contradicts';
COMMENT ON TABLE myria.note_relations IS 'The newest link of each type from one note to another; who may see both notes may see it.';
COMMENT ON COLUMN myria.note_relations.event_seq IS 'The event that says so.';
COMMENT ON COLUMN myria.note_relations.replaces_seq IS 'The newest event of this type that takes the place of all earlier links of the pair.';

ALTER TABLE myria.note_relations ENABLE ROW LEVEL SECURITY;
ALTER TABLE myria.note_relations FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_named ON myria.note_relations
    USING (tenant_id = current_setting('myria.tenant', true) OR current_setting('myria.tenant', true) = '*');
CREATE TRIGGER refuse_while_deleted BEFORE INSERT ON myria.note_relations
    FOR EACH STATEMENT EXECUTE FUNCTION myria.refuse_while_deleted();

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
COMMENT ON VIEW myria.note_relations_of_log IS 'The rows of note_relations as the log gives them.';

-- What stands: in whichever order links and what replaces them are folded.
CREATE VIEW myria.standing_links WITH (security_invoker) AS
SELECT r.tenant_id, r.from_id, r.to_id, r.relation, r.event_seq FROM myria.note_relations r
WHERE NOT EXISTS (
    SELECT FROM myria.note_relations o
    WHERE o.tenant_id = r.tenant_id AND o.from_id = r.from_id AND o.to_id = r.to_id AND o.replaces_seq > r.event_seq);
COMMENT ON VIEW myria.standing_links IS 'Links that no later one has replaced: of a pair one of each type.';

CREATE FUNCTION myria.keep_relation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO myria.note_relations AS r (tenant_id, from_id, to_id, relation, event_seq)
    VALUES (NEW.tenant_id, NEW.from_id, NEW.to_id, NEW.relation, NEW.event_seq)
    ON CONFLICT (tenant_id, from_id, to_id, relation) DO UPDATE SET event_seq = EXCLUDED.event_seq
    WHERE r.event_seq < EXCLUDED.event_seq;
    RETURN NULL;
END $$;
CREATE TRIGGER keep_relation AFTER INSERT OR UPDATE ON myria.note_links
    FOR EACH ROW EXECUTE FUNCTION myria.keep_relation();

-- What a link said before one of another type took its place stands again.
SELECT set_config('myria.tenant', '*', true);
INSERT INTO myria.note_relations
SELECT g.tenant_id, g.from_id, g.to_id, g.relation, g.event_seq, g.replaces_seq FROM myria.note_relations_of_log g;

CREATE OR REPLACE FUNCTION myria.erased_places() RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
    SELECT ARRAY['events', 'renderings', 'search_blocks', 'subject_nodes', 'subject_roots', 'subject_holders', 'notes',
        'note_looks', 'note_usage', 'note_links', 'note_evaluations', 'note_evaluations_due', 'memories', 'registrations',
        'turns', 'turn_sessions', 'turn_extractions_due', 'turn_shadows', 'tool_feedback', 'sessions', 'unit_plans',
        'llm_calls', 'builds', 'build_tasks', 'build_units', 'snapshots', 'rebuild_requests', 'pointer_moves', 'tenants',
        'access_log', 'call_log', 'erasures', 'erased_words', 'text_vectors', 'event_vectors', 'note_relations']
$$;
