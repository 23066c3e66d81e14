-- What the planner believes of a table before the first ANALYZE: it holds ten tenants.
--
-- Without statistics it takes the name of a tenant alone to choose one row of an empty table, as a whole key does: every
-- index that begins with it costs the same, and the newest one is taken. A prepared statement keeps that plan while the
-- table grows, and reads all that the tenant has for each row that it looks up. With few tenants a whole key is worth
-- more than its beginning; with one alone, a whole table would be worth more than an index.
--
-- PostgreSQL 18 and newer; before, there is no way to say so. Old pods go on working.

DO $$
DECLARE
    name text;
BEGIN
    IF current_setting('server_version_num')::integer < 180000 THEN
        RETURN;
    END IF;
    FOR name IN
        SELECT t FROM myria.tables_of_tenants() AS t
        WHERE t <> 'tenants' AND NOT EXISTS (
            SELECT FROM pg_stats s WHERE s.schemaname = 'myria' AND s.tablename = t AND s.attname = 'tenant_id')
    LOOP
        PERFORM pg_restore_attribute_stats(
            'schemaname', 'myria', 'relname', name, 'attname', 'tenant_id', 'inherited', false,
            'version', current_setting('server_version_num')::integer,
            'null_frac', 0::real, 'avg_width', 8::integer, 'n_distinct', 10::real);
    END LOOP;
END $$;
