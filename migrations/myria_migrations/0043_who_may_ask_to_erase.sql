-- Serving proves to PostgreSQL that an officer asks for an erasure, and is told of refused keys alone whether they are.
--
-- Old pods go on working. What they begin through the tool is not proved: it waits for `myria erase --resume`. Once
-- `roles.sql` was run they no longer read the key of refused keys, so until the last of them is gone an erased event could
-- be appended once more through one of them.

ALTER TABLE myria.erasures ADD COLUMN proved boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN myria.erasures.proved IS 'Whether the control plane or an owner began it, or a key with the role erase was shown for it.';
SELECT set_config('myria.tenant', '*', true);
UPDATE myria.erasures SET proved = true;

-- A key by its id and the digest of its secret; an access token by its digest, with an empty id.
CREATE FUNCTION myria.officer(tenant text, key text, digest bytea) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT k.key_id
    FROM (SELECT * FROM myria.find_key(key, digest) WHERE key <> ''
          UNION ALL SELECT * FROM myria.find_token(digest) WHERE key = '') k
    WHERE k.tenant_id = tenant AND 'erase' = ANY (k.roles) AND k.revoked_at IS NULL AND k.suspended_at IS NULL
      AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())
$$;
COMMENT ON FUNCTION myria.officer IS 'The id of the key, with the role erase, that a key or token proves.';
REVOKE EXECUTE ON FUNCTION myria.officer FROM PUBLIC;

CREATE FUNCTION myria.prove_erasure(tenant text, erasure text, key text, digest bytea) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    officer text := myria.officer(tenant, key, digest);
BEGIN
    UPDATE myria.erasures e SET proved = true, actor = 'key:' || officer
    WHERE e.tenant_id = tenant AND e.erasure_id = erasure AND e.state = 'planned' AND officer IS NOT NULL;
    RETURN FOUND;
END $$;
COMMENT ON FUNCTION myria.prove_erasure IS 'Lets the control plane carry out an erasure that serving wrote down, if this key or token has the role erase. Its list is closed then.';
REVOKE EXECUTE ON FUNCTION myria.prove_erasure FROM PUBLIC;

CREATE FUNCTION myria.refused_among(tenant text, keys bytea[]) RETURNS bytea[]
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    own_secret bytea;
BEGIN
    SELECT s.secret INTO own_secret FROM myria.erasure_secrets s WHERE s.tenant_id = tenant;
    IF own_secret IS NULL THEN
        RETURN '{}';
    END IF;
    RETURN ARRAY(SELECT k FROM unnest(keys) AS k
                 JOIN myria.refused_keys r ON r.tenant_id = tenant AND r.key = sha256(own_secret || k));
END $$;
COMMENT ON FUNCTION myria.refused_among IS 'Those of some dedupe keys whose events were erased, and nothing else of the tenant''s keyed tombstones.';
REVOKE EXECUTE ON FUNCTION myria.refused_among FROM PUBLIC;
