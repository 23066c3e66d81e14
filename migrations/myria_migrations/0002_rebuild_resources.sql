-- What Kubernetes' MyriaRebuild resources leave in the database: whose build a build is, which requests have become
-- resources, who asked for a move of the pointer; and a revision by which the control plane finds what changed.
--
-- Old pods go on working: every column has a default or is null, and the triggers fill in revisions for them.

ALTER TABLE myria.builds
    ADD COLUMN resource_name text,
    ADD COLUMN resource_uid text COLLATE "C",
    ADD COLUMN resource_manager text,
    ADD COLUMN job_uid text COLLATE "C",
    ADD COLUMN suspended boolean NOT NULL DEFAULT false,
    ADD COLUMN revision xid8 NOT NULL DEFAULT '0';
COMMENT ON COLUMN myria.builds.resource_uid IS 'The MyriaRebuild that this build belongs to; null where there is no Kubernetes.';
COMMENT ON COLUMN myria.builds.job_uid IS 'The Job that was made for it: once set, no other is ever made.';
COMMENT ON COLUMN myria.builds.suspended IS 'Its resource asks it to wait: it takes no slot of the installation.';
COMMENT ON COLUMN myria.builds.revision IS 'The transaction that wrote the row last.';
CREATE UNIQUE INDEX builds_resource ON myria.builds (tenant_id, resource_uid) WHERE resource_uid IS NOT NULL;
CREATE INDEX builds_resource_uid ON myria.builds (resource_uid) WHERE resource_uid IS NOT NULL;
CREATE INDEX builds_revision ON myria.builds (revision);

ALTER TABLE myria.rebuild_requests
    ADD COLUMN resource_name text,
    ADD COLUMN resource_uid text COLLATE "C",
    ADD COLUMN resource_manager text,
    ADD COLUMN made_resource boolean NOT NULL DEFAULT false,
    ADD COLUMN suspended boolean NOT NULL DEFAULT false,
    ADD COLUMN closed_at timestamptz,
    ADD COLUMN revision xid8 NOT NULL DEFAULT '0';
COMMENT ON COLUMN myria.rebuild_requests.resource_name IS 'The MyriaRebuild of this request; written before the operator makes one.';
COMMENT ON COLUMN myria.rebuild_requests.made_resource IS 'The operator made the resource out of this row, and may prune it.';
COMMENT ON COLUMN myria.rebuild_requests.closed_at IS 'Its resource ended or went away without a build: never taken up again.';
CREATE UNIQUE INDEX rebuild_requests_resource ON myria.rebuild_requests (tenant_id, resource_uid) WHERE resource_uid IS NOT NULL;
CREATE INDEX rebuild_requests_resource_uid ON myria.rebuild_requests (resource_uid) WHERE resource_uid IS NOT NULL;
CREATE INDEX rebuild_requests_revision ON myria.rebuild_requests (revision);

ALTER TABLE myria.pointer_moves
    ADD COLUMN resource_name text,
    ADD COLUMN resource_uid text COLLATE "C",
    ADD COLUMN manager text;
COMMENT ON COLUMN myria.pointer_moves.manager IS 'The field manager that asked on Kubernetes, as it called itself: not verified.';
CREATE UNIQUE INDEX pointer_moves_resource ON myria.pointer_moves (tenant_id, resource_uid) WHERE resource_uid IS NOT NULL;

CREATE FUNCTION myria.note_revision() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.revision := pg_current_xact_id();
    RETURN NEW;
END $$;
CREATE TRIGGER note_revision BEFORE INSERT OR UPDATE ON myria.builds
    FOR EACH ROW EXECUTE FUNCTION myria.note_revision();
CREATE TRIGGER note_revision BEFORE INSERT OR UPDATE ON myria.rebuild_requests
    FOR EACH ROW EXECUTE FUNCTION myria.note_revision();
