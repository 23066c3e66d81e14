-- Every table with a tenant_id is bound to the tenant that the transaction names in myria.tenant. The control plane names '*';
-- the roles that serve and build carry a restrictive policy that refuses that (roles.sql).

DO $$
DECLARE
    name text;
BEGIN
    FOR name IN
        SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id'
        WHERE c.relnamespace = 'myria'::regnamespace AND c.relkind = 'r' ORDER BY c.relname
    LOOP
        EXECUTE format('ALTER TABLE myria.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE myria.%I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format($p$CREATE POLICY tenant_named ON myria.%I
            USING (tenant_id = current_setting('myria.tenant', true) OR current_setting('myria.tenant', true) = '*')$p$, name);
    END LOOP;
END $$;

-- What the planner believes of a table before the first ANALYZE: it holds ten tenants.
--
-- Without statistics it takes the name of a tenant alone to choose one row of an empty table, as a whole key does: every
-- index that begins with it costs the same, and the newest one is taken. A prepared statement keeps that plan while the
-- table grows, and reads all that the tenant has for each row that it looks up. With few tenants a whole key is worth more
-- than its beginning; with one alone, a whole table would be worth more than an index. Only PostgreSQL 18 and newer can be
-- told.
DO $$
DECLARE
    name text;
BEGIN
    IF current_setting('server_version_num')::integer < 180000 THEN
        RETURN;
    END IF;
    FOR name IN SELECT t FROM myria.tables_of_tenants() AS t WHERE t <> 'tenants' LOOP
        PERFORM pg_restore_attribute_stats(
            'schemaname', 'myria', 'relname', name, 'attname', 'tenant_id', 'inherited', false,
            'version', current_setting('server_version_num')::integer,
            'null_frac', 0::real, 'avg_width', 8::integer, 'n_distinct', 10::real);
    END LOOP;
END $$;
