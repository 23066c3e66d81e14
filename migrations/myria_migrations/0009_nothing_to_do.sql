-- A build that finds nothing new ends without a snapshot, unless it is forced; and a rollback goes back to the last
-- snapshot that differs.
--
-- Old pods go on working: the new columns have defaults, and no program before this writes the new status.

ALTER TABLE myria.builds
    ADD COLUMN is_forced boolean NOT NULL DEFAULT false,
    DROP CONSTRAINT builds_status_check,
    ADD CONSTRAINT builds_status_check CHECK (status IN (
        'queued', 'running', 'succeeded', 'held', 'nothing_to_do', 'superseded', 'failed', 'aborted')) NOT VALID;
ALTER TABLE myria.builds VALIDATE CONSTRAINT builds_status_check;
ALTER TABLE myria.rebuild_requests ADD COLUMN is_forced boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN myria.builds.is_forced IS 'Gives a snapshot although nothing is new.';

-- A build notes in its snapshot's counts how many scopes it changed: none, and the snapshot shows what its parent shows.
CREATE FUNCTION myria.snapshots_before(tenant text, snapshot text) RETURNS TABLE (snapshot_id text, differs boolean)
LANGUAGE sql STABLE
AS $$
    WITH RECURSIVE before AS (
        SELECT s.parent_snapshot_id, coalesce((s.counts->>'scopes_changed')::bigint, 0) > 0 AS differs
        FROM myria.snapshots s WHERE s.tenant_id = tenant AND s.snapshot_id = snapshot
        UNION ALL
        SELECT s.parent_snapshot_id, coalesce((s.counts->>'scopes_changed')::bigint, 0) > 0
        FROM before b
        JOIN myria.snapshots s ON s.tenant_id = tenant AND s.snapshot_id = b.parent_snapshot_id
        WHERE NOT b.differs
    )
    SELECT b.parent_snapshot_id, b.differs FROM before b WHERE b.parent_snapshot_id IS NOT NULL
$$;
COMMENT ON FUNCTION myria.snapshots_before IS 'The ancestors of a snapshot up to the first that shows something else: that one differs.';
