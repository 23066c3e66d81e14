-- How much a tenant stores and asks of language models, counted as it happens, and how much of both it may.
--
-- Old pods go on working: triggers count for them, and the functions run as their owner. What is stored already is
-- measured once, in one scan of the log (some 3 s per million events), for which appends wait.

ALTER TABLE myria.tenants
    ADD COLUMN bytes_stored bigint CHECK (bytes_stored > 0),
    ADD COLUMN concurrent_builds smallint CHECK (concurrent_builds BETWEEN 0 AND 1),
    ADD COLUMN model_tokens_per_day bigint CHECK (model_tokens_per_day >= 0);
COMMENT ON COLUMN myria.tenants.bytes_stored IS 'Bytes of payloads that it may store; NULL: what the settings say.';
COMMENT ON COLUMN myria.tenants.concurrent_builds IS 'Builds of it that may run at once: a tenant never has more than one; 0: none is begun. NULL: one.';
COMMENT ON COLUMN myria.tenants.model_tokens_per_day IS 'Tokens of language models that it may use on one day in UTC; NULL: what the settings say.';

-- A few rows per tenant, so that appends at the same time seldom wait for each other; each is as small as an update in
-- place wants it.
CREATE TABLE myria.stored_sizes (
    tenant_id     text COLLATE "C" NOT NULL,
    part          smallint NOT NULL,
    payload_bytes bigint NOT NULL,
    PRIMARY KEY (tenant_id, part)
) WITH (fillfactor = 50);
COMMENT ON TABLE myria.stored_sizes IS 'The bytes of the payloads of a tenant''s events, as PostgreSQL writes them as text, in parts: their sum counts.';

CREATE TABLE myria.model_uses (
    tenant_id text COLLATE "C" NOT NULL PRIMARY KEY,
    day       date NOT NULL,
    tokens    bigint NOT NULL
);
COMMENT ON TABLE myria.model_uses IS 'Tokens that a tenant''s builds and walks used on the last day (UTC) on which they used any.';

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['stored_sizes', 'model_uses'] LOOP
        EXECUTE format('ALTER TABLE myria.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE myria.%I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format($p$CREATE POLICY tenant_named ON myria.%I
            USING (tenant_id = current_setting('myria.tenant', true) OR current_setting('myria.tenant', true) = '*')$p$, name);
    END LOOP;
END $$;

-- Whoever writes, whatever tenant that transaction names, the tally follows.
CREATE FUNCTION myria.count_stored(tenant text, bytes bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    named CONSTANT text := current_setting('myria.tenant', true);
BEGIN
    PERFORM set_config('myria.tenant', $1, true);
    INSERT INTO myria.stored_sizes AS s (tenant_id, part, payload_bytes)
    VALUES ($1, pg_backend_pid() % 16, $2)
    ON CONFLICT (tenant_id, part) DO UPDATE SET payload_bytes = s.payload_bytes + EXCLUDED.payload_bytes;
    PERFORM set_config('myria.tenant', coalesce(named, ''), true);
END $$;

CREATE FUNCTION myria.count_appended() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM myria.count_stored(a.tenant_id, sum(octet_length(a.payload::text)))
    FROM appended a GROUP BY a.tenant_id;
    RETURN NULL;
END $$;
CREATE TRIGGER count_appended AFTER INSERT ON myria.events REFERENCING NEW TABLE AS appended
    FOR EACH STATEMENT EXECUTE FUNCTION myria.count_appended();

CREATE FUNCTION myria.count_rewritten() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM myria.count_stored(NEW.tenant_id,
        coalesce(octet_length(NEW.payload::text), 0) - coalesce(octet_length(OLD.payload::text), 0));
    RETURN NULL;
END $$;
CREATE TRIGGER count_rewritten AFTER UPDATE OF payload ON myria.events
    FOR EACH ROW EXECUTE FUNCTION myria.count_rewritten();

CREATE FUNCTION myria.count_model_use() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO myria.model_uses AS u (tenant_id, day, tokens)
    VALUES (NEW.tenant_id, (clock_timestamp() AT TIME ZONE 'UTC')::date, NEW.input_tokens + NEW.output_tokens)
    ON CONFLICT (tenant_id) DO UPDATE
    SET day = EXCLUDED.day, tokens = EXCLUDED.tokens + CASE WHEN u.day = EXCLUDED.day THEN u.tokens ELSE 0 END;
    RETURN NULL;
END $$;
CREATE TRIGGER count_model_use AFTER INSERT ON myria.llm_calls
    FOR EACH ROW WHEN (NEW.input_tokens + NEW.output_tokens > 0) EXECUTE FUNCTION myria.count_model_use();
REVOKE EXECUTE ON FUNCTION myria.count_stored FROM PUBLIC;

SELECT set_config('myria.tenant', '*', true);
INSERT INTO myria.stored_sizes (tenant_id, part, payload_bytes)
SELECT e.tenant_id, 0, sum(octet_length(e.payload::text)) FROM myria.events e GROUP BY e.tenant_id;
