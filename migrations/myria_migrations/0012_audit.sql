-- What was administered, what was refused, and which calls were made.
--
-- Old pods go on working: they write none of it.

CREATE TABLE myria.access_log (
    tenant_id text COLLATE "C" NOT NULL,
    entry_id  bigint GENERATED ALWAYS AS IDENTITY,
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind      text NOT NULL CHECK (kind IN ('act', 'refusal')),
    actor     text NOT NULL,
    action    text NOT NULL,
    target    text,
    outcome   text NOT NULL,
    face      text,
    address   text,
    times     integer NOT NULL DEFAULT 1 CHECK (times > 0),
    details   jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (tenant_id, entry_id)
);
COMMENT ON TABLE myria.access_log IS 'Administrative acts, and refused attempts; never a secret. It outlives keys and tenants.';
COMMENT ON COLUMN myria.access_log.tenant_id IS '`-`, which no tenant can be called, where a refused attempt has no tenant.';
COMMENT ON COLUMN myria.access_log.times IS 'Equal attempts of about a second are one row.';
CREATE INDEX access_log_by_time ON myria.access_log (at);

CREATE TABLE myria.call_log (
    tenant_id  text COLLATE "C" NOT NULL,
    entry_id   bigint GENERATED ALWAYS AS IDENTITY,
    at         timestamptz NOT NULL,
    request_id text NOT NULL,
    principal  text NOT NULL,
    face       text NOT NULL,
    tool       text NOT NULL,
    context_id text,
    latency_ms real NOT NULL,
    outcome    text NOT NULL,
    PRIMARY KEY (tenant_id, entry_id)
);
COMMENT ON TABLE myria.call_log IS 'One row per call, or per sampled call, without anything of its content.';
CREATE INDEX call_log_by_time ON myria.call_log (at);

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['access_log', 'call_log'] LOOP
        EXECUTE format('ALTER TABLE myria.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE myria.%I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format($p$CREATE POLICY tenant_named ON myria.%I
            USING (tenant_id = current_setting('myria.tenant', true) OR current_setting('myria.tenant', true) = '*')$p$, name);
    END LOOP;
END $$;
