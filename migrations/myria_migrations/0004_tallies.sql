-- Totals that outlive their rows: how builds ended and how long they took, what broke which rule, moves of the pointer.
-- Retention deletes builds; a total that were counted from rows would then go backwards.
--
-- Each end of a build inserts rows of its own, in the same transaction, so that nobody waits for anybody; the sum is
-- the total, and fold_tallies() replaces the rows by their sums now and then. They name no tenant. Old pods go on
-- working: triggers count for them, and the functions run as their owner, so no role needs new rights.

CREATE TABLE myria.tallies (
    family text COLLATE "C" NOT NULL,
    labels text[] COLLATE "C" NOT NULL DEFAULT '{}',
    amount bigint NOT NULL
);
COMMENT ON TABLE myria.tallies IS 'Totals since the database was made, in parts: the sum over equal (family, labels) counts.';

ALTER TABLE myria.builds
    ADD COLUMN tasks_done integer,
    ADD COLUMN tasks_degraded integer;
COMMENT ON COLUMN myria.builds.tasks_done IS 'How many of its tasks were done when it ended; null while it has not, and when nobody counted.';
COMMENT ON COLUMN myria.builds.tasks_degraded IS 'How many of those gave a deterministic answer where a model was asked for.';

-- One duration: the bucket it falls into, by the bucket's upper bound in seconds, and its microseconds for the sum.
CREATE FUNCTION myria.tally_duration(family text, label text, took interval) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    INSERT INTO myria.tallies (family, labels, amount)
    SELECT $1, ARRAY[$2, coalesce(
        (SELECT b.le FROM unnest(ARRAY['0.1', '0.5', '1.0', '2.0', '5.0', '10.0', '30.0', '60.0', '120.0', '300.0', '600.0',
                                       '1800.0', '3600.0']) WITH ORDINALITY AS b (le, position)
         WHERE d.seconds <= b.le::numeric ORDER BY b.position LIMIT 1), '+Inf')], 1
    FROM (SELECT greatest(extract(epoch FROM took), 0) AS seconds) d
    UNION ALL
    SELECT $1, ARRAY[$2, 'sum'], greatest(extract(epoch FROM took), 0) * 1000000
$$;

CREATE FUNCTION myria.tally_build() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    asked_at timestamptz;
BEGIN
    SELECT r.created_at INTO asked_at
    FROM myria.rebuild_requests r WHERE r.tenant_id = NEW.tenant_id AND r.request_id = NEW.request_id;
    INSERT INTO myria.tallies (family, labels, amount)
    SELECT 'builds_finished', ARRAY[NEW.trigger, NEW.status], 1
    UNION ALL
    SELECT 'build_tasks', ARRAY['done'], NEW.tasks_done - coalesce(NEW.tasks_degraded, 0) WHERE NEW.tasks_done > 0
    UNION ALL
    SELECT 'build_tasks', ARRAY['degraded'], NEW.tasks_degraded WHERE NEW.tasks_degraded > 0
    UNION ALL
    SELECT 'validation_failures', ARRAY[left(v->>'rule', 100)], count(*)
    FROM jsonb_array_elements(CASE WHEN jsonb_typeof(NEW.error#>'{details,violations}') = 'array'
                                   THEN NEW.error#>'{details,violations}' END) AS v
    WHERE NEW.status = 'failed' AND v->>'rule' IS NOT NULL
    GROUP BY 2;
    IF asked_at IS NOT NULL THEN
        PERFORM myria.tally_duration('build_phase', 'queue', NEW.created_at - asked_at);
    END IF;
    IF NEW.started_at IS NOT NULL THEN
        PERFORM myria.tally_duration('build_phase', 'start', NEW.started_at - NEW.created_at);
        PERFORM myria.tally_duration('build_phase', 'compile', NEW.finished_at - NEW.started_at);
        PERFORM myria.tally_duration('build_duration', NEW.status, NEW.finished_at - NEW.started_at);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER tally_build AFTER UPDATE ON myria.builds
    FOR EACH ROW WHEN (OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL) EXECUTE FUNCTION myria.tally_build();

CREATE FUNCTION myria.tally_move() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO myria.tallies (family, labels, amount) VALUES ('pointer_moves', ARRAY[NEW.kind], 1);
    RETURN NULL;
END $$;
CREATE TRIGGER tally_move AFTER INSERT ON myria.pointer_moves
    FOR EACH ROW EXECUTE FUNCTION myria.tally_move();

CREATE FUNCTION myria.tallied() RETURNS TABLE (family text, labels text[], amount bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT t.family, t.labels, sum(t.amount)::bigint FROM myria.tallies t GROUP BY t.family, t.labels
$$;
COMMENT ON FUNCTION myria.tallied IS 'The totals; they never become smaller.';

-- Two at once fold different rows: the second waits for the first one's, finds them gone, and leaves the sums alone.
CREATE FUNCTION myria.fold_tallies() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH gone AS (
        DELETE FROM myria.tallies WHERE (SELECT count(*) FROM myria.tallies) > 1000 RETURNING family, labels, amount
    )
    INSERT INTO myria.tallies (family, labels, amount)
    SELECT g.family, g.labels, sum(g.amount) FROM gone g GROUP BY g.family, g.labels
$$;
COMMENT ON FUNCTION myria.fold_tallies IS 'Replaces many rows of tallies by their sums.';
REVOKE EXECUTE ON FUNCTION myria.tally_duration FROM PUBLIC;
