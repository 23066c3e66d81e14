-- The key of the chain of receipts apart from the key of refused keys: appends need the latter, and serving reads it.
--
-- Old pods go on working. An old `myria erase` takes the key of a chain from where it was: do not run one for a tenant
-- that had erased nothing before. Chains that are there keep their key, which serving could read until now.

CREATE TABLE myria.receipt_secrets (
    tenant_id text COLLATE "C" PRIMARY KEY,
    secret    bytea NOT NULL CHECK (octet_length(secret) = 32)
);
COMMENT ON TABLE myria.receipt_secrets IS 'The key of a tenant''s chain of receipts. Serving and building cannot read it.';
ALTER TABLE myria.receipt_secrets ENABLE ROW LEVEL SECURITY;
ALTER TABLE myria.receipt_secrets FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_named ON myria.receipt_secrets
    USING (tenant_id = current_setting('myria.tenant', true) OR current_setting('myria.tenant', true) = '*');
SELECT set_config('myria.tenant', '*', true);
INSERT INTO myria.receipt_secrets (tenant_id, secret) SELECT s.tenant_id, s.secret FROM myria.erasure_secrets s;

CREATE TRIGGER refuse_while_deleted BEFORE INSERT ON myria.receipt_secrets
    FOR EACH STATEMENT EXECUTE FUNCTION myria.refuse_while_deleted();

-- Whoever verifies needs no key: this tells whether a receipt follows from the one before it, and nothing else.
CREATE FUNCTION myria.receipt_holds(tenant text, previous bytea, content bytea, mac bytea) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    secret bytea;
    part   integer;
    inner_pad bytea := decode(repeat('36', 64), 'hex');
    outer_pad bytea := decode(repeat('5c', 64), 'hex');
BEGIN
    SELECT s.secret INTO secret FROM myria.receipt_secrets s WHERE s.tenant_id = tenant;
    IF secret IS NULL THEN
        RETURN false;
    END IF;
    FOR part IN 0..31 LOOP
        inner_pad := set_byte(inner_pad, part, get_byte(secret, part) # 54);
        outer_pad := set_byte(outer_pad, part, get_byte(secret, part) # 92);
    END LOOP;
    RETURN mac = sha256(outer_pad || sha256(inner_pad || coalesce(previous, decode(repeat('00', 32), 'hex')) || content));
END $$;
COMMENT ON FUNCTION myria.receipt_holds IS 'Whether mac is the HMAC-SHA256, under the tenant''s key, of the MAC before it and a receipt''s canonical JSON.';
