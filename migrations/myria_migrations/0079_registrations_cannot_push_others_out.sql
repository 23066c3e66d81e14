-- Programs that register themselves, and what a key allows them, are bounded by who they are, and push nobody out: a
-- registration that nobody has used ends after a while, those of one network are so many at most, and so are the grants of
-- a key and of a tenant.

ALTER TABLE myria.oauth_clients ADD COLUMN registered_from text COLLATE "C";
COMMENT ON COLUMN myria.oauth_clients.registered_from IS
    'The network from which it registered, until a person first allows it something; then NULL.';

CREATE FUNCTION myria.oauth_register_from(wanted_id text, wanted_name text, uris text[], origin text, most_of_origin integer,
    most integer, unused_s double precision) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    named text := coalesce(current_setting('myria.tenant', true), '');
    since timestamptz := clock_timestamp() - make_interval(secs => unused_s);
    from_here bigint;
    many bigint;
BEGIN
    PERFORM set_config('myria.tenant', '*', true);
    PERFORM pg_advisory_xact_lock(hashtextextended('myria.oauth_clients', 0));
    DELETE FROM myria.oauth_clients WHERE client_id IN (
        SELECT c.client_id FROM myria.oauth_clients c
        WHERE c.created_at <= since AND NOT EXISTS (SELECT FROM myria.oauth_grants g WHERE g.client_id = c.client_id)
        ORDER BY c.created_at LIMIT 100);
    SELECT count(*) FILTER (WHERE c.registered_from = origin), count(*) INTO from_here, many
    FROM myria.oauth_clients c
    WHERE c.created_at > since AND NOT EXISTS (SELECT FROM myria.oauth_grants g WHERE g.client_id = c.client_id);
    IF from_here < most_of_origin AND many < most THEN
        INSERT INTO myria.oauth_clients (client_id, name, redirect_uris, registered_from)
        VALUES (wanted_id, wanted_name, uris, origin);
    END IF;
    PERFORM set_config('myria.tenant', named, true);
    RETURN CASE WHEN from_here >= most_of_origin THEN 'origin' WHEN many >= most THEN 'all' ELSE 'kept' END;
END $$;
COMMENT ON FUNCTION myria.oauth_register_from IS
    'Keeps a client and says kept; origin or all, where as many wait for their first use as may, from there or in all.';

-- Programs of the release before register by this one: it pushes nobody out any more.
CREATE OR REPLACE FUNCTION myria.oauth_register(wanted_id text, wanted_name text, uris text[], most integer) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT myria.oauth_register_from(wanted_id, wanted_name, uris, '', most, most, 3600) = 'kept' $$;

CREATE FUNCTION myria.oauth_client(wanted_id text, unused_s double precision)
RETURNS TABLE (client_id text, name text, redirect_uris text[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    named text := coalesce(current_setting('myria.tenant', true), '');
BEGIN
    PERFORM set_config('myria.tenant', '*', true);
    RETURN QUERY
        SELECT c.client_id, c.name, c.redirect_uris FROM myria.oauth_clients c
        WHERE c.client_id = wanted_id
          AND (c.created_at > clock_timestamp() - make_interval(secs => unused_s)
               OR EXISTS (SELECT FROM myria.oauth_grants g WHERE g.client_id = c.client_id));
    PERFORM set_config('myria.tenant', named, true);
END $$;
COMMENT ON FUNCTION myria.oauth_client IS 'A client, unless nobody used it for so many seconds since it registered.';

CREATE FUNCTION myria.oauth_grant_within(wanted_key text, secret_digest bytea, wanted_client text, wanted_face text,
    wanted_scopes text[], uri text, wanted_challenge text, new_code bytea, code_s double precision,
    most_of_key integer, most_of_tenant integer) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    named text := coalesce(current_setting('myria.tenant', true), '');
    owner text;
    of_key bigint;
    of_tenant bigint;
    made boolean := false;
BEGIN
    PERFORM set_config('myria.tenant', '*', true);
    SELECT k.tenant_id INTO owner FROM myria.keys k WHERE k.key_id = wanted_key AND k.digest = secret_digest;
    PERFORM pg_advisory_xact_lock(hashtextextended('myria.oauth_grants ' || owner, 0));
    SELECT count(*) FILTER (WHERE g.key_id = wanted_key), count(*) INTO of_key, of_tenant
    FROM myria.oauth_grants g
    WHERE g.tenant_id = owner AND g.ended_at IS NULL AND g.expires_at > clock_timestamp();
    IF (of_key < most_of_key) IS NOT FALSE AND (of_tenant < most_of_tenant) IS NOT FALSE THEN
        made := myria.oauth_grant(wanted_key, secret_digest, wanted_client, wanted_face, wanted_scopes, uri, wanted_challenge,
                                  new_code, code_s);
        UPDATE myria.oauth_clients c SET registered_from = NULL
        WHERE made AND c.client_id = wanted_client AND c.registered_from IS NOT NULL;
    END IF;
    PERFORM set_config('myria.tenant', named, true);
    RETURN CASE WHEN of_key >= most_of_key THEN 'key' WHEN of_tenant >= most_of_tenant THEN 'tenant'
                WHEN made THEN 'made' ELSE 'refused' END;
END $$;
COMMENT ON FUNCTION myria.oauth_grant_within IS
    'As oauth_grant, saying made or refused; key or tenant, where that has as many grants as it may.';
