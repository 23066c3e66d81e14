-- Since when a schedule is in force: what was due before was not missed.
--
-- Old pods go on working: they know nothing of it. The function runs as its owner, so no role needs new rights.

CREATE TABLE myria.schedules (
    name       text COLLATE "C" PRIMARY KEY,
    expression text NOT NULL,
    since      timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE myria.schedules IS 'One row per schedule of the installation: its cron expression, and since when it is this one.';

CREATE FUNCTION myria.schedule_since(name text, expression text) RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    known timestamptz;
BEGIN
    SELECT s.since INTO known FROM myria.schedules s WHERE s.name = $1 AND s.expression = $2;
    IF known IS NULL THEN
        INSERT INTO myria.schedules AS s (name, expression) VALUES ($1, $2)
        ON CONFLICT ON CONSTRAINT schedules_pkey DO UPDATE
            SET expression = EXCLUDED.expression,
                since = CASE WHEN s.expression = EXCLUDED.expression THEN s.since ELSE clock_timestamp() END
        RETURNING s.since INTO known;
    END IF;
    RETURN known;
END $$;
COMMENT ON FUNCTION myria.schedule_since IS 'Since when a schedule has this expression: from the first call on.';
