-- What `myria verify` asks of tables that are folded from the log.

CREATE OR REPLACE FUNCTION myria.differs_from_log(tenant text, projection text)
RETURNS TABLE (is_kept boolean, fields jsonb)
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN QUERY EXECUTE format($q$
        WITH kept AS (SELECT * FROM myria.%I k WHERE k.tenant_id = $1),
             given AS (SELECT * FROM myria.%I g WHERE g.tenant_id = $1)
        (SELECT true, to_jsonb(x) FROM (TABLE kept EXCEPT TABLE given) x LIMIT 1000)
        UNION ALL
        (SELECT false, to_jsonb(x) FROM (TABLE given EXCEPT TABLE kept) x LIMIT 1000)
        ORDER BY 2, 1$q$, projection, projection || '_of_log') USING tenant;
END $$;
COMMENT ON FUNCTION myria.differs_from_log IS 'Rows that only one of both sides has: a table, and its view *_of_log, which folds the log anew.';
