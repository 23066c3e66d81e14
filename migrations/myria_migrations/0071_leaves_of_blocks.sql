-- The leaves beneath the node of a search block, so that a build beside a long scope need not walk all of its tree.
--
-- Old pods go on working: they write blocks without them and read none. Builds fill in what is missing, some at a time.

ALTER TABLE myria.search_blocks ADD COLUMN leaf_ids bytea;
ALTER TABLE myria.search_blocks ALTER COLUMN leaf_ids SET STORAGE EXTERNAL;
COMMENT ON COLUMN myria.search_blocks.leaf_ids IS
    'The node_ids of all leaves at and under the rendering, in a row; NULL where nobody has written them yet.';
