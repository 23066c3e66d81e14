-- Links between notes, folded from the log in the append transaction.
--
-- Old pods go on working, and append no links.

CREATE TABLE myria.note_links (
    tenant_id text COLLATE "C" NOT NULL,
    from_id   text COLLATE "C" NOT NULL,
    to_id     text COLLATE "C" NOT NULL,
    relation  text COLLATE "C" NOT NULL,
    event_seq bigint NOT NULL,
    PRIMARY KEY (tenant_id, from_id, to_id)
);
CREATE INDEX note_links_to ON myria.note_links (tenant_id, to_id);
COMMENT ON TABLE myria.note_links IS 'The newest link from one note to another; who may see both notes may see it.';
COMMENT ON COLUMN myria.note_links.event_seq IS 'The event that says so.';

ALTER TABLE myria.note_links ENABLE ROW LEVEL SECURITY;
ALTER TABLE myria.note_links FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_named ON myria.note_links
    USING (tenant_id = current_setting('myria.tenant', true) OR current_setting('myria.tenant', true) = '*');
CREATE TRIGGER refuse_while_deleted BEFORE INSERT ON myria.note_links
    FOR EACH STATEMENT EXECUTE FUNCTION myria.refuse_while_deleted();

-- The fold itself, as a function of the log. What is no link in full is none.
CREATE VIEW myria.note_links_of_log WITH (security_invoker) AS
SELECT DISTINCT ON (e.tenant_id, said.link->>'from', said.link->>'to')
       e.tenant_id, said.link->>'from' AS from_id, said.link->>'to' AS to_id, said.link->>'relation' AS relation, e.event_seq
FROM myria.events e
CROSS JOIN LATERAL (SELECT e.payload->'link' AS link) AS said
WHERE e.type = 'myria.link' AND e.internal
  AND jsonb_typeof(said.link->'from') = 'string' AND jsonb_typeof(said.link->'to') = 'string'
  AND jsonb_typeof(said.link->'relation') = 'string'
ORDER BY e.tenant_id, said.link->>'from', said.link->>'to', e.event_seq DESC;
COMMENT ON VIEW myria.note_links_of_log IS 'The rows of note_links as the log gives them.';
