-- The notes of one statement are put into the queue of maintenance together, and no longer one by one.
--
-- Old pods go on working.

CREATE FUNCTION myria.look_at_new_notes() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO myria.note_looks AS k (tenant_id, note_id, scope_id, look_at, ends_at)
    SELECT n.tenant_id, n.note_id, n.scope_id, n.changed_at,
           CASE WHEN n.session THEN n.changed_at + interval '1 second' * coalesce((
               SELECT s.idle_s FROM myria.session_events s
               WHERE s.tenant_id = n.tenant_id AND s.event_seq = n.event_seq), 3600) END
    FROM made n WHERE n.live ORDER BY n.note_id
    ON CONFLICT (tenant_id, note_id) DO UPDATE SET
        look_at = EXCLUDED.look_at, ends_at = EXCLUDED.ends_at, phase = NULL, likeness = NULL;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION myria.look_at_new_notes IS 'Lets maintenance look at the notes that a statement inserted.';

DROP TRIGGER look_at_note ON myria.notes;
CREATE TRIGGER look_at_note AFTER UPDATE ON myria.notes
    FOR EACH ROW WHEN (NEW.live) EXECUTE FUNCTION myria.look_at_note();
CREATE TRIGGER look_at_new_notes AFTER INSERT ON myria.notes REFERENCING NEW TABLE AS made
    FOR EACH STATEMENT EXECUTE FUNCTION myria.look_at_new_notes();
