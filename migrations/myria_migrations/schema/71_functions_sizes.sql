-- What a tenant stores, and the tokens that its models use, counted as it happens.

-- Counts for the tenant of the rows, whichever one the transaction names. A tenant has sixteen rows, so that backends seldom
-- wait for each other.
CREATE OR REPLACE FUNCTION myria.count_stored(tenant text, bytes bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    named CONSTANT text := myria.name_tenant($1);
BEGIN
    INSERT INTO myria.stored_sizes AS s (tenant_id, part, payload_bytes)
    VALUES ($1, pg_backend_pid() % 16, $2)
    ON CONFLICT (tenant_id, part) DO UPDATE SET payload_bytes = s.payload_bytes + EXCLUDED.payload_bytes;
    PERFORM myria.name_tenant(named);
END $$;
REVOKE EXECUTE ON FUNCTION myria.count_stored FROM PUBLIC;

-- For the append functions. Row-level security binds it to the tenant that the transaction names.
CREATE OR REPLACE FUNCTION myria.count_added(tenant text, bytes bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    own CONSTANT smallint := pg_backend_pid() % 16;
BEGIN
    IF bytes < 0 THEN
        RAISE EXCEPTION 'what is appended has no negative size' USING ERRCODE = '22003';
    END IF;
    UPDATE myria.stored_sizes s SET payload_bytes = s.payload_bytes + bytes WHERE s.tenant_id = tenant AND s.part = own;
    IF NOT FOUND THEN
        INSERT INTO myria.stored_sizes AS s (tenant_id, part, payload_bytes) VALUES (tenant, own, bytes)
        ON CONFLICT (tenant_id, part) DO UPDATE SET payload_bytes = s.payload_bytes + EXCLUDED.payload_bytes;
    END IF;
END $$;
COMMENT ON FUNCTION myria.count_added IS 'Counts the bytes of events that were inserted, for whoever says that it counts them itself (myria.tally = own).';
REVOKE EXECUTE ON FUNCTION myria.count_added FROM PUBLIC;

-- Adds up what rows bring, and counts it when the statement ends: were it counted for each row, PostgreSQL would look
-- through all versions of the tally that the transaction made before.
CREATE OR REPLACE FUNCTION myria.count_appended() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    counted CONSTANT text := current_setting('myria.counted_tenant', true);
    bytes bigint := nullif(current_setting('myria.counted_bytes', true), '');
    done text;
BEGIN
    IF bytes > 0 AND (TG_LEVEL = 'STATEMENT' OR counted <> NEW.tenant_id) THEN
        done := myria.count_stored(counted, bytes);
        bytes := 0;
        done := set_config('myria.counted_bytes', '0', true);
    END IF;
    IF TG_LEVEL = 'ROW' THEN
        done := set_config('myria.counted_tenant', NEW.tenant_id, true);
        done := set_config('myria.counted_bytes', (coalesce(bytes, 0) + octet_length(NEW.payload::text))::text, true);
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION myria.count_rewritten() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM myria.count_stored(NEW.tenant_id,
        coalesce(octet_length(NEW.payload::text), 0) - coalesce(octet_length(OLD.payload::text), 0));
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION myria.count_model_use() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO myria.model_uses AS u (tenant_id, day, tokens)
    VALUES (NEW.tenant_id, (clock_timestamp() AT TIME ZONE 'UTC')::date, NEW.input_tokens + NEW.output_tokens)
    ON CONFLICT (tenant_id) DO UPDATE
    SET day = EXCLUDED.day, tokens = EXCLUDED.tokens + CASE WHEN u.day = EXCLUDED.day THEN u.tokens ELSE 0 END;
    RETURN NULL;
END $$;
