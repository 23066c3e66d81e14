-- What `myria verify` asks of tables, and of those that are folded from the log.

CREATE OR REPLACE FUNCTION myria.count_rows(tenant text, table_name text) RETURNS bigint
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    rows bigint;
BEGIN
    EXECUTE format('SELECT count(*) FROM myria.%I x WHERE x.tenant_id = $1', table_name) INTO rows USING tenant;
    RETURN rows;
END $$;
COMMENT ON FUNCTION myria.count_rows IS 'How many rows of a tenant a table has.';

CREATE OR REPLACE FUNCTION myria.differs_from_log(tenant text, projection text)
RETURNS TABLE (is_kept boolean, fields jsonb)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    given CONSTANT text := projection || '_of_log';
    columns CONSTANT text := (
        SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) FROM pg_attribute a
        WHERE a.attrelid = format('myria.%I', given)::regclass AND a.attnum > 0);
BEGIN
    RETURN QUERY EXECUTE format($q$
        WITH kept AS (SELECT %1$s FROM myria.%2$I k WHERE k.tenant_id = $1),
             given AS (SELECT %1$s FROM myria.%3$I g WHERE g.tenant_id = $1)
        (SELECT true, to_jsonb(x) FROM (TABLE kept EXCEPT TABLE given) x LIMIT 1000)
        UNION ALL
        (SELECT false, to_jsonb(x) FROM (TABLE given EXCEPT TABLE kept) x LIMIT 1000)
        ORDER BY 2, 1$q$, columns, projection, given) USING tenant;
END $$;
COMMENT ON FUNCTION myria.differs_from_log IS 'Rows that only one of both sides has, in the columns of the second: a table, and its view *_of_log, which folds the log anew.';
