-- A small authorization server of our own: clients that registered themselves, what a person granted them with a key,
-- and the tokens of each grant. Of codes and tokens only SHA-256 digests are kept.
--
-- Old pods go on working: they know nothing of grants, and refuse such tokens as unknown.

CREATE TABLE myria.oauth_clients (
    client_id     text COLLATE "C" PRIMARY KEY,
    name          text NOT NULL,
    redirect_uris text[] COLLATE "C" NOT NULL CHECK (cardinality(redirect_uris) BETWEEN 1 AND 10),
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE myria.oauth_clients IS 'Programs that registered themselves (RFC 7591). Anybody may, so nothing here is to be trusted.';
CREATE INDEX oauth_clients_by_age ON myria.oauth_clients (created_at);

CREATE TABLE myria.oauth_grants (
    tenant_id       text COLLATE "C" NOT NULL,
    grant_id        uuid NOT NULL DEFAULT gen_random_uuid(),
    key_id          text COLLATE "C" NOT NULL,
    client_id       text COLLATE "C" NOT NULL REFERENCES myria.oauth_clients (client_id) ON DELETE CASCADE,
    face            text COLLATE "C" NOT NULL,
    scopes          text[] COLLATE "C" NOT NULL,
    redirect_uri    text NOT NULL,
    challenge       text NOT NULL,
    code_digest     bytea NOT NULL CHECK (octet_length(code_digest) = 32),
    code_expires_at timestamptz NOT NULL,
    code_used_at    timestamptz,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at      timestamptz NOT NULL,
    ended_at        timestamptz,
    ended_reason    text,
    PRIMARY KEY (tenant_id, grant_id),
    FOREIGN KEY (tenant_id, key_id) REFERENCES myria.keys (tenant_id, key_id) ON DELETE CASCADE
);
COMMENT ON TABLE myria.oauth_grants IS 'What a person allowed a client with a key: a code, then a family of tokens. It ends with the key.';
CREATE UNIQUE INDEX oauth_grants_by_code ON myria.oauth_grants (code_digest);
CREATE INDEX oauth_grants_by_client ON myria.oauth_grants (client_id);
CREATE INDEX oauth_grants_by_key ON myria.oauth_grants (tenant_id, key_id);
CREATE INDEX oauth_grants_by_end ON myria.oauth_grants (expires_at);

CREATE TABLE myria.oauth_tokens (
    tenant_id  text COLLATE "C" NOT NULL,
    digest     bytea NOT NULL CHECK (octet_length(digest) = 32),
    grant_id   uuid NOT NULL,
    refreshes  boolean NOT NULL,
    expires_at timestamptz NOT NULL,
    used_at    timestamptz,
    PRIMARY KEY (tenant_id, digest),
    FOREIGN KEY (tenant_id, grant_id) REFERENCES myria.oauth_grants (tenant_id, grant_id) ON DELETE CASCADE
);
COMMENT ON COLUMN myria.oauth_tokens.used_at IS 'When a refresh token was exchanged; a second time ends its grant.';
-- A caller shows a token before anybody knows the tenant.
CREATE UNIQUE INDEX oauth_tokens_by_digest ON myria.oauth_tokens (digest);
CREATE INDEX oauth_tokens_by_grant ON myria.oauth_tokens (tenant_id, grant_id);

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['oauth_grants', 'oauth_tokens'] LOOP
        EXECUTE format('ALTER TABLE myria.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE myria.%I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format($p$CREATE POLICY tenant_named ON myria.%I
            USING (tenant_id = current_setting('myria.tenant', true) OR current_setting('myria.tenant', true) = '*')$p$, name);
    END LOOP;
END $$;

CREATE TRIGGER oauth_grants_ended AFTER UPDATE OF ended_at ON myria.oauth_grants
    FOR EACH STATEMENT EXECUTE FUNCTION myria.move_access_epoch();

-- The functions below are all that serving may do with these tables. Each wants proof: a key's secret, a code or a token.

CREATE FUNCTION myria.oauth_register(wanted_id text, wanted_name text, uris text[], most integer) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    named text := coalesce(current_setting('myria.tenant', true), '');
    many bigint;
BEGIN
    PERFORM set_config('myria.tenant', '*', true);
    PERFORM pg_advisory_xact_lock(hashtextextended('myria.oauth_clients', 0));
    SELECT count(*) INTO many FROM myria.oauth_clients;
    IF many >= most THEN
        -- Those that nobody granted anything make room, the oldest first.
        DELETE FROM myria.oauth_clients WHERE client_id IN (
            SELECT c.client_id FROM myria.oauth_clients c
            WHERE NOT EXISTS (SELECT FROM myria.oauth_grants g WHERE g.client_id = c.client_id AND g.ended_at IS NULL
                                AND g.expires_at > clock_timestamp())
            ORDER BY c.created_at LIMIT many - most + 1);
        SELECT count(*) INTO many FROM myria.oauth_clients;
    END IF;
    IF many < most THEN
        INSERT INTO myria.oauth_clients (client_id, name, redirect_uris) VALUES (wanted_id, wanted_name, uris);
    END IF;
    PERFORM set_config('myria.tenant', named, true);
    RETURN many < most;
END $$;
COMMENT ON FUNCTION myria.oauth_register IS 'Keeps a client; false where there are as many as may be, each with a grant.';

CREATE FUNCTION myria.oauth_grant(wanted_key text, secret_digest bytea, wanted_client text, wanted_face text, wanted_scopes text[],
    uri text, wanted_challenge text, new_code bytea, code_s double precision) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    named text := coalesce(current_setting('myria.tenant', true), '');
    made boolean;
BEGIN
    PERFORM set_config('myria.tenant', '*', true);
    DELETE FROM myria.oauth_grants g WHERE (g.tenant_id, g.grant_id) IN (
        SELECT o.tenant_id, o.grant_id FROM myria.oauth_grants o WHERE o.expires_at < clock_timestamp() - interval '1 day'
        ORDER BY o.expires_at LIMIT 100 FOR UPDATE SKIP LOCKED);
    INSERT INTO myria.oauth_grants (tenant_id, key_id, client_id, face, scopes, redirect_uri, challenge, code_digest,
        code_expires_at, expires_at)
    SELECT k.tenant_id, k.key_id, c.client_id, wanted_face, wanted_scopes, uri, wanted_challenge, new_code,
           clock_timestamp() + make_interval(secs => code_s), clock_timestamp() + make_interval(secs => code_s)
    FROM myria.keys k JOIN myria.tenants t ON t.tenant_id = k.tenant_id, myria.oauth_clients c
    WHERE k.key_id = wanted_key AND k.digest = secret_digest AND k.revoked_at IS NULL AND t.suspended_at IS NULL
      AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())
      AND k.roles @> wanted_scopes AND wanted_face = ANY (k.faces)
      AND c.client_id = wanted_client AND uri = ANY (c.redirect_uris);
    made := FOUND;
    PERFORM set_config('myria.tenant', named, true);
    RETURN made;
END $$;
COMMENT ON FUNCTION myria.oauth_grant IS 'Keeps what a key''s bearer allows a client, and its code; false where the key cannot allow it.';

CREATE FUNCTION myria.oauth_exchange(shown bytea, refreshing boolean, wanted_client text, uri text, wanted_challenge text,
    wanted_face text, wanted_scopes text[], new_access bytea, new_refresh bytea, access_s double precision, refresh_s double precision)
RETURNS text[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    named text := coalesce(current_setting('myria.tenant', true), '');
    given myria.oauth_grants;
    token myria.oauth_tokens;
    good boolean;
BEGIN
    PERFORM set_config('myria.tenant', '*', true);
    IF refreshing THEN
        SELECT * INTO token FROM myria.oauth_tokens o WHERE o.digest = shown AND o.refreshes;
        SELECT * INTO given FROM myria.oauth_grants g
            WHERE g.tenant_id = token.tenant_id AND g.grant_id = token.grant_id FOR UPDATE;
        -- Read again under the grant's lock: two exchanges of one token at once must not both succeed.
        SELECT * INTO token FROM myria.oauth_tokens o WHERE o.digest = shown AND o.refreshes;
    ELSE
        SELECT * INTO given FROM myria.oauth_grants g WHERE g.code_digest = shown FOR UPDATE;
    END IF;
    IF given.grant_id IS NULL OR given.ended_at IS NOT NULL OR given.client_id IS DISTINCT FROM wanted_client THEN
        PERFORM set_config('myria.tenant', named, true);
        RETURN NULL;
    END IF;
    IF refreshing THEN
        good := token.used_at IS NULL;
    ELSE
        good := given.code_used_at IS NULL AND given.redirect_uri = uri AND given.challenge = wanted_challenge;
    END IF;
    IF NOT good THEN
        -- Shown twice, or by somebody who did not ask for it: one of the two stole it, so nobody keeps anything.
        UPDATE myria.oauth_grants g SET ended_at = clock_timestamp(), ended_reason = CASE WHEN refreshing THEN 'refresh token used twice'
            WHEN given.code_used_at IS NOT NULL THEN 'code used twice' ELSE 'code shown by another' END
        WHERE g.tenant_id = given.tenant_id AND g.grant_id = given.grant_id;
        PERFORM set_config('myria.tenant', named, true);
        RETURN NULL;
    END IF;
    IF (CASE WHEN refreshing THEN token.expires_at ELSE given.code_expires_at END) <= clock_timestamp()
        OR given.face <> coalesce(wanted_face, given.face) OR NOT given.scopes @> coalesce(wanted_scopes, given.scopes)
        OR NOT EXISTS (SELECT FROM myria.keys k JOIN myria.tenants t ON t.tenant_id = k.tenant_id
            WHERE k.tenant_id = given.tenant_id AND k.key_id = given.key_id AND k.revoked_at IS NULL AND t.suspended_at IS NULL
              AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())) THEN
        PERFORM set_config('myria.tenant', named, true);
        RETURN NULL;
    END IF;
    IF refreshing THEN
        UPDATE myria.oauth_tokens o SET used_at = clock_timestamp() WHERE o.tenant_id = token.tenant_id AND o.digest = token.digest;
        DELETE FROM myria.oauth_tokens o WHERE o.tenant_id = given.tenant_id AND o.grant_id = given.grant_id
            AND NOT o.refreshes AND o.expires_at <= clock_timestamp();
    END IF;
    UPDATE myria.oauth_grants g SET code_used_at = coalesce(g.code_used_at, clock_timestamp()),
        expires_at = clock_timestamp() + make_interval(secs => refresh_s)
    WHERE g.tenant_id = given.tenant_id AND g.grant_id = given.grant_id;
    INSERT INTO myria.oauth_tokens (tenant_id, digest, grant_id, refreshes, expires_at) VALUES
        (given.tenant_id, new_access, given.grant_id, false, clock_timestamp() + make_interval(secs => access_s)),
        (given.tenant_id, new_refresh, given.grant_id, true, clock_timestamp() + make_interval(secs => refresh_s));
    PERFORM set_config('myria.tenant', named, true);
    RETURN given.scopes;
END $$;
COMMENT ON FUNCTION myria.oauth_exchange IS 'A code or a refresh token, once, for an access and a refresh token; the scopes, or NULL.';

CREATE FUNCTION myria.oauth_revoke(shown bytea, wanted_client text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    named text := coalesce(current_setting('myria.tenant', true), '');
    ended boolean;
BEGIN
    PERFORM set_config('myria.tenant', '*', true);
    UPDATE myria.oauth_grants g SET ended_at = clock_timestamp(), ended_reason = 'revoked by the client'
    FROM myria.oauth_tokens o
    WHERE o.digest = shown AND g.tenant_id = o.tenant_id AND g.grant_id = o.grant_id AND g.client_id = wanted_client
      AND g.ended_at IS NULL;
    ended := FOUND;
    PERFORM set_config('myria.tenant', named, true);
    RETURN ended;
END $$;
COMMENT ON FUNCTION myria.oauth_revoke IS 'Ends the grant of a token that this client shows.';

CREATE FUNCTION myria.find_token(shown bytea)
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
        SELECT k.tenant_id, k.key_id, k.name,
               ARRAY(SELECT r FROM unnest(k.roles) AS r WHERE r = ANY (g.scopes)),
               ARRAY(SELECT f FROM unnest(k.faces) AS f WHERE f = g.face),
               k.own_participants, k.may_ask, k.channels, k.requests_per_s, k.concurrency,
               least(o.expires_at, k.expires_at), coalesce(k.revoked_at, g.ended_at), t.suspended_at
        FROM myria.oauth_tokens o
            JOIN myria.oauth_grants g ON g.tenant_id = o.tenant_id AND g.grant_id = o.grant_id
            JOIN myria.keys k ON k.tenant_id = g.tenant_id AND k.key_id = g.key_id
            JOIN myria.tenants t ON t.tenant_id = k.tenant_id
        WHERE o.digest = $1 AND NOT o.refreshes;
    PERFORM set_config('myria.tenant', named, true);
END $$;
COMMENT ON FUNCTION myria.find_token IS 'What an access token stands for: its key, as far as the grant and its face go.';
