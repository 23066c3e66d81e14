-- What is kept over REST alone (kinds episodic, session and entity) is permanent and says itself what it repeats, so
-- maintenance has nothing to do for it: it enters no queue any more. Nor does an index look for what says the same among
-- these, or for the most important of their kinds, which nobody asks. A row and four entries less for each memory.
--
-- Old pods go on working: notes of other kinds stand in the queue and the indexes as before. Their reads of the most
-- important notes of a kind take the index of the newest instead.

CREATE UNIQUE INDEX notes_once_made ON myria.notes (tenant_id, scope_id, digest)
    WHERE live AND kind NOT IN ('episodic', 'session', 'entity');
CREATE INDEX notes_kind_made ON myria.notes (tenant_id, scope_id, kind, importance DESC, event_seq DESC)
    WHERE live AND kind NOT IN ('episodic', 'session', 'entity');
DROP INDEX myria.notes_once;
DROP INDEX myria.notes_kind;
ALTER INDEX myria.notes_once_made RENAME TO notes_once;
ALTER INDEX myria.notes_kind_made RENAME TO notes_kind;

DROP TRIGGER look_at_note ON myria.notes;
CREATE TRIGGER look_at_note AFTER UPDATE ON myria.notes
    FOR EACH ROW WHEN (NEW.live AND (NEW.session OR NEW.kind NOT IN ('episodic', 'session', 'entity')))
    EXECUTE FUNCTION myria.look_at_note();

CREATE OR REPLACE FUNCTION myria.look_at_new_notes() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO myria.note_looks AS k (tenant_id, note_id, scope_id, look_at, ends_at)
    SELECT n.tenant_id, n.note_id, n.scope_id, n.changed_at,
           CASE WHEN n.session THEN n.changed_at + interval '1 second' * coalesce((
               SELECT s.idle_s FROM myria.session_events s
               WHERE s.tenant_id = n.tenant_id AND s.event_seq = n.event_seq), 3600)
           ELSE myria.note_ends_at(n.kind, n.importance, n.anchor, n.changed_at, NULL, n.lasts_days) END
    FROM made n
    WHERE n.live AND (n.session OR n.kind NOT IN ('episodic', 'session', 'entity')) ORDER BY n.note_id
    ON CONFLICT (tenant_id, note_id) DO UPDATE SET
        look_at = EXCLUDED.look_at, ends_at = EXCLUDED.ends_at, phase = NULL, likeness = NULL;
    RETURN NULL;
END $$;
