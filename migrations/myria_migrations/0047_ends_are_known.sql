-- When a note ends is known from its first moment on, and with each use anew, so what has ended is in no answer before
-- maintenance looks at it. And what `context` showed of a session, so that recall need not show it again.
--
-- Old pods go on working: where one counts a use, the end of that note is known again once maintenance has looked at it.

CREATE FUNCTION myria.note_ends_at(kind text, importance real, anchor boolean, changed_at timestamptz, used_at timestamptz,
                                   lasts_days integer)
RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT CASE
        WHEN anchor THEN NULL
        WHEN p.days IS NOT NULL
        THEN to_timestamp((floor(extract(epoch FROM changed_at) / 86400) + p.days)::double precision * 86400)
        WHEN p.stale_days IS NULL OR importance::double precision >= 0.8 THEN NULL
        ELSE greatest(changed_at, used_at) + make_interval(secs => 86400 * greatest(
            p.stale_days,
            CASE WHEN importance::double precision > 0.1 THEN 139 * ln(importance::double precision / 0.1) / ln(2) END))
    END
    FROM (
        SELECT coalesce(lasts_days, CASE kind WHEN 'fact_l1' THEN 1 WHEN 'fact_l2' THEN 7 END) AS days,
               CASE WHEN kind IN ('fact', 'error', 'relation', 'episode') THEN 60::double precision
                    WHEN kind = 'decision' THEN 90 WHEN kind = 'procedure' THEN 30 END AS stale_days
    ) p
$$;
COMMENT ON FUNCTION myria.note_ends_at IS 'When a note that ends with no session ends if nobody uses it: notes/expiry.py with the policies of notes/kinds.toml. NULL: never.';

CREATE OR REPLACE FUNCTION myria.look_at_note() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    ends_at timestamptz;
BEGIN
    IF NEW.session THEN
        ends_at := NEW.changed_at + interval '1 second' * coalesce((
            SELECT s.idle_s FROM myria.session_events s
            WHERE s.tenant_id = NEW.tenant_id AND s.event_seq = NEW.event_seq), 3600);
    ELSE
        ends_at := myria.note_ends_at(NEW.kind, NEW.importance, NEW.anchor, NEW.changed_at, (
            SELECT u.used_at FROM myria.note_usage u WHERE u.tenant_id = NEW.tenant_id AND u.note_id = NEW.note_id),
            NEW.lasts_days);
    END IF;
    INSERT INTO myria.note_looks AS k (tenant_id, note_id, scope_id, look_at, ends_at)
    VALUES (NEW.tenant_id, NEW.note_id, NEW.scope_id, NEW.changed_at, ends_at)
    ON CONFLICT (tenant_id, note_id) DO UPDATE SET
        look_at = EXCLUDED.look_at, ends_at = EXCLUDED.ends_at, phase = NULL, likeness = NULL;
    RETURN NULL;
END $$;

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
    FROM made n WHERE n.live ORDER BY n.note_id
    ON CONFLICT (tenant_id, note_id) DO UPDATE SET
        look_at = EXCLUDED.look_at, ends_at = EXCLUDED.ends_at, phase = NULL, likeness = NULL;
    RETURN NULL;
END $$;

COMMENT ON COLUMN myria.note_looks.ends_at IS 'No later than the end of a session note, and the end of another if nobody uses it; NULL: never, or not known since an old pod counted a use.';

SELECT set_config('myria.tenant', '*', true);
UPDATE myria.note_looks k SET ends_at = n.ends_at
FROM (
    SELECT s.tenant_id, s.note_id,
           myria.note_ends_at(s.kind, s.importance, s.anchor, s.changed_at, s.used_at, m.lasts_days) AS ends_at
    FROM myria.standing_notes s
    JOIN myria.notes m ON m.tenant_id = s.tenant_id AND m.note_id = s.note_id
    WHERE s.live AND NOT s.session AND s.reason IS DISTINCT FROM 'restored'
) n
WHERE k.tenant_id = n.tenant_id AND k.note_id = n.note_id AND k.ends_at IS NULL AND n.ends_at IS NOT NULL;

CREATE TABLE myria.notes_shown (
    tenant_id   text COLLATE "C" NOT NULL,
    session_key bytea NOT NULL,
    note_ids    text[] COLLATE "C" NOT NULL,
    shown_at    timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, session_key)
);
CREATE INDEX notes_shown_oldest ON myria.notes_shown (tenant_id, shown_at);
COMMENT ON TABLE myria.notes_shown IS 'Which notes context showed in a session, for a day, so that recall leaves them out there. It is no part of the log: what is lost is shown again.';

DO $$
BEGIN
    ALTER TABLE myria.notes_shown ENABLE ROW LEVEL SECURITY;
    ALTER TABLE myria.notes_shown FORCE ROW LEVEL SECURITY;
    CREATE POLICY tenant_named ON myria.notes_shown
        USING (tenant_id = current_setting('myria.tenant', true) OR current_setting('myria.tenant', true) = '*');
    CREATE TRIGGER refuse_while_deleted BEFORE INSERT ON myria.notes_shown
        FOR EACH STATEMENT EXECUTE FUNCTION myria.refuse_while_deleted();
END $$;
