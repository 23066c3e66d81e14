-- What names the tenant of a transaction, guards tenants that are being deleted, and removes what they own.

-- For functions that must look beyond the tenant that their caller named, and name it again at their end. A SET clause would
-- do both, but lets nobody except a superuser create the function: no extension declares this setting.
CREATE OR REPLACE FUNCTION myria.name_tenant(tenant text) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    named CONSTANT text := coalesce(current_setting('myria.tenant', true), '');
BEGIN
    PERFORM set_config('myria.tenant', tenant, true);
    RETURN named;
END $$;
COMMENT ON FUNCTION myria.name_tenant IS 'Names a tenant for the rest of the transaction, or * for all, as far as the role may; returns what was named before.';

-- The transaction takes its number before it reads the mark. Deletion commits the mark, reads the newest transaction's number
-- and waits for all older ones: so it has waited for every writer that did not see the mark.
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

CREATE OR REPLACE FUNCTION myria.tables_of_tenants() RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE tables AS (
        SELECT c.oid, c.relname
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped
        WHERE c.relnamespace = 'myria'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
          AND c.relname <> 'access_log'
    ), depths (oid, depth) AS (
        SELECT t.oid, 0 FROM tables t
        UNION
        SELECT f.conrelid, d.depth + 1
        FROM depths d JOIN pg_constraint f ON f.confrelid = d.oid AND f.contype = 'f' AND f.conrelid <> d.oid
    )
    SELECT t.relname::text
    FROM tables t JOIN depths d ON d.oid = t.oid
    GROUP BY t.relname
    ORDER BY t.relname = 'tenants', max(d.depth) DESC, t.relname
$$;
COMMENT ON FUNCTION myria.tables_of_tenants IS 'Every table whose rows belong to a tenant, but the record of what was administered, which outlives it: those that refer to others first, tenants last.';

-- What the control plane deletes of the log, it deletes through this: only of a tenant that carries the mark, and only
-- of the tenant that the transaction names (row-level security binds the owner as well).
CREATE OR REPLACE FUNCTION myria.remove_of_tenant(tenant text, table_name text, most integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    removed bigint;
BEGIN
    UPDATE myria.tenants t SET removal_began_at = coalesce(t.removal_began_at, clock_timestamp())
    WHERE t.tenant_id = $1 AND t.deleting_at IS NOT NULL;
    IF NOT FOUND OR $2 = 'tenants' OR NOT EXISTS (SELECT FROM myria.tables_of_tenants() AS known WHERE known = $2) THEN
        RAISE EXCEPTION 'nothing of tenant % may be removed from %', $1, $2 USING ERRCODE = 'insufficient_privilege';
    END IF;
    EXECUTE format('DELETE FROM myria.%1$I WHERE tenant_id = $1 AND ctid = ANY (ARRAY(
        SELECT ctid FROM myria.%1$I WHERE tenant_id = $1 LIMIT $2))', $2) USING $1, $3;
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN removed;
END $$;
COMMENT ON FUNCTION myria.remove_of_tenant IS 'Removes at most so many rows of a tenant that is being deleted from one table; returns how many.';
REVOKE EXECUTE ON FUNCTION myria.remove_of_tenant FROM PUBLIC;

CREATE OR REPLACE FUNCTION myria.remains_of_tenant(tenant text) RETURNS SETOF text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    name text;
    holds boolean;
BEGIN
    FOR name IN SELECT myria.tables_of_tenants() LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM myria.%I WHERE tenant_id = $1)', name) INTO holds USING $1;
        IF holds THEN
            RETURN NEXT name;
        END IF;
    END LOOP;
END $$;
COMMENT ON FUNCTION myria.remains_of_tenant IS 'The tables that hold rows of the tenant that the transaction names.';
REVOKE EXECUTE ON FUNCTION myria.remains_of_tenant FROM PUBLIC;

CREATE OR REPLACE FUNCTION myria.forget_tenant(tenant text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF EXISTS (SELECT FROM myria.remains_of_tenant($1) AS name WHERE name <> 'tenants') THEN
        RETURN false;
    END IF;
    DELETE FROM myria.tenants t WHERE t.tenant_id = $1 AND t.deleting_at IS NOT NULL;
    RETURN FOUND;
END $$;
COMMENT ON FUNCTION myria.forget_tenant IS 'Removes the row of a tenant that is being deleted, once nothing else of it is left.';
REVOKE EXECUTE ON FUNCTION myria.forget_tenant FROM PUBLIC;
