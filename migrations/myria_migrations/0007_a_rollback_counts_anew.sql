-- Automatic triggers count only events past the greatest cutoff that a build tried. After a rollback the events that it
-- abandoned are to be built again, once somebody resumes automatic builds: they count as never tried.
--
-- Old pods go on working: the trigger does it for them, and as its owner, so no role needs new rights.

CREATE FUNCTION myria.forget_attempts() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE myria.tenants t SET attempted_cutoff = s.cutoff
    FROM myria.snapshots s
    WHERE t.tenant_id = NEW.tenant_id AND s.tenant_id = NEW.tenant_id AND s.snapshot_id = NEW.to_snapshot_id;
    RETURN NULL;
END $$;
CREATE TRIGGER forget_attempts AFTER INSERT ON myria.pointer_moves
    FOR EACH ROW WHEN (NEW.kind = 'rollback') EXECUTE FUNCTION myria.forget_attempts();
COMMENT ON COLUMN myria.tenants.attempted_cutoff IS 'Greatest cutoff that any build tried since the last rollback: automatic triggers count only events past it.';

-- Tenants that stand rolled back already.
SELECT set_config('myria.tenant', '*', true);
UPDATE myria.tenants t SET attempted_cutoff = s.cutoff
FROM myria.active_snapshots a
JOIN myria.snapshots s ON s.tenant_id = a.tenant_id AND s.snapshot_id = a.snapshot_id
WHERE a.tenant_id = t.tenant_id AND t.auto_paused_reason = 'rollback';
