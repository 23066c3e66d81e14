-- Who may ask: tenants that can be suspended, and the keys that prove who calls.
--
-- Old pods go on working: they know nothing of keys, and serve one tenant as before.

ALTER TABLE myria.tenants ADD COLUMN suspended_at timestamptz, ADD COLUMN suspended_reason text;
COMMENT ON COLUMN myria.tenants.suspended_at IS 'Since when its credentials are refused; its data stays.';

CREATE TABLE myria.keys (
    tenant_id        text COLLATE "C" NOT NULL REFERENCES myria.tenants (tenant_id) ON DELETE CASCADE,
    key_id           text COLLATE "C" NOT NULL CHECK (key_id ~ '^[a-z0-9]{6,32}$'),
    name             text NOT NULL,
    description      text,
    digest           bytea NOT NULL CHECK (octet_length(digest) = 32),
    roles            text[] COLLATE "C" NOT NULL CHECK (roles <@ ARRAY['append', 'read', 'admin', 'erase']),
    faces            text[] COLLATE "C" NOT NULL,
    own_participants text[] COLLATE "C" NOT NULL,
    may_ask          text[] COLLATE "C" NOT NULL,
    channels         text[] COLLATE "C",
    requests_per_s   real CHECK (requests_per_s > 0),
    concurrency      integer CHECK (concurrency > 0),
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by       text NOT NULL,
    expires_at       timestamptz,
    revoked_at       timestamptz,
    replaces_key_id  text COLLATE "C",
    PRIMARY KEY (tenant_id, key_id)
);
COMMENT ON TABLE myria.keys IS 'Credentials: what each may do. Of the secret only its SHA-256 is here.';
COMMENT ON COLUMN myria.keys.channels IS 'Patterns of the channels it may append to; NULL: any.';
COMMENT ON COLUMN myria.keys.may_ask IS 'Patterns of the participants it may name beside its own.';
-- A caller names a key before anybody knows the tenant, so an id is unique over all of them.
CREATE UNIQUE INDEX keys_by_id ON myria.keys (key_id);

CREATE TABLE myria.key_uses (
    tenant_id    text COLLATE "C" NOT NULL,
    key_id       text COLLATE "C" NOT NULL,
    last_used_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, key_id),
    FOREIGN KEY (tenant_id, key_id) REFERENCES myria.keys (tenant_id, key_id) ON DELETE CASCADE
);
COMMENT ON TABLE myria.key_uses IS 'When a key was last used, to some minutes; apart from keys, whose every change is looked at.';

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['keys', 'key_uses'] LOOP
        EXECUTE format('ALTER TABLE myria.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE myria.%I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format($p$CREATE POLICY tenant_named ON myria.%I
            USING (tenant_id = current_setting('myria.tenant', true) OR current_setting('myria.tenant', true) = '*')$p$, name);
    END LOOP;
END $$;

CREATE TABLE myria.access_epoch (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    epoch     bigint NOT NULL DEFAULT 1
);
COMMENT ON TABLE myria.access_epoch IS 'One row: moves with every change of a key, or of who may use a tenant. Processes read it twice a second.';
INSERT INTO myria.access_epoch DEFAULT VALUES;

CREATE FUNCTION myria.move_access_epoch() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE myria.access_epoch SET epoch = epoch + 1;
    RETURN NULL;
END $$;
CREATE TRIGGER keys_changed AFTER INSERT OR UPDATE OR DELETE ON myria.keys
    FOR EACH STATEMENT EXECUTE FUNCTION myria.move_access_epoch();
CREATE TRIGGER tenants_changed AFTER UPDATE OF suspended_at OR DELETE ON myria.tenants
    FOR EACH STATEMENT EXECUTE FUNCTION myria.move_access_epoch();

-- The one look over all tenants that serving may take: only who knows a secret gets its key's row.
CREATE FUNCTION myria.find_key(wanted text, secret_digest bytea)
RETURNS TABLE (
    tenant_id text, key_id text, name text, roles text[], faces text[], own_participants text[], may_ask text[],
    channels text[], requests_per_s real, concurrency integer, expires_at timestamptz, revoked_at timestamptz,
    suspended_at timestamptz
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    named text := coalesce(current_setting('myria.tenant', true), '');
BEGIN
    PERFORM set_config('myria.tenant', '*', true);
    RETURN QUERY
        SELECT k.tenant_id, k.key_id, k.name, k.roles, k.faces, k.own_participants, k.may_ask, k.channels,
               k.requests_per_s, k.concurrency, k.expires_at, k.revoked_at, t.suspended_at
        FROM myria.keys k JOIN myria.tenants t ON t.tenant_id = k.tenant_id
        WHERE k.key_id = $1 AND k.digest = $2;
    PERFORM set_config('myria.tenant', named, true);
END $$;
COMMENT ON FUNCTION myria.find_key IS 'The key with this id and this digest of its secret, whatever its tenant; no row without both.';
