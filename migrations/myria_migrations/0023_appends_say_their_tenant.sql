-- An append says since when the tenant exists in whose scopes it writes, and is refused where that is another one now.
--
-- So the statement that inserts events need not look up their scopes. Old pods go on working: they say nothing, and
-- look their scopes up.

-- The transaction gets its number before the look: whoever reads the number of the newest transaction after the mark was
-- committed, and waits for all older ones, has waited for every writer that did not see the mark.
CREATE OR REPLACE FUNCTION myria.refuse_while_deleted() RETURNS trigger
LANGUAGE plpgsql
AS $$
DECLARE
    remembered CONSTANT text := pg_catalog.current_setting('myria.tenant_since', true);
    writer xid8;
    since timestamptz;
    is_deleted boolean;
BEGIN
    writer := pg_catalog.pg_current_xact_id();
    SELECT t.created_at, t.deleting_at IS NOT NULL INTO since, is_deleted
    FROM myria.tenants t WHERE t.tenant_id = pg_catalog.current_setting('myria.tenant', true);
    IF is_deleted THEN
        RAISE EXCEPTION 'the tenant is being deleted' USING ERRCODE = 'MYR01';
    END IF;
    IF remembered <> '' AND since IS DISTINCT FROM remembered::timestamptz THEN
        RAISE EXCEPTION 'the tenant is not the one whose scopes were remembered' USING ERRCODE = 'MYR02';
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION myria.refuse_while_deleted IS 'Refuses a statement that would add rows to a tenant that is being deleted, or that was made anew since the writer learned of its scopes.';
