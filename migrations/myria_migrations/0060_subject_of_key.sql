-- The node of the subject of each key, beside who holds the key: a leaf's subjects are found by one look-up of its keys.
-- And subjects by the id of their topic.
--
-- Old pods neither write nor read it. Subjects that they planned have none: readers then place hits in time.

ALTER TABLE myria.subject_holders ADD COLUMN subject bytea;
COMMENT ON COLUMN myria.subject_holders.subject IS 'The rendering of the key''s subject; NULL where the key is none.';

CREATE INDEX subject_nodes_topic ON myria.subject_nodes (tenant_id, topic_id) WHERE is_subject;
