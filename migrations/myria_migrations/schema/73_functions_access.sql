-- All that serving may do with keys, grants and tokens. Each function wants proof: a key's secret, a code or a token.

CREATE OR REPLACE FUNCTION myria.move_access_epoch() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE myria.access_epoch SET epoch = epoch + 1;
    RETURN NULL;
END $$;

-- The one look over all tenants that serving may take: only who knows a secret gets its key's row.
CREATE OR REPLACE FUNCTION myria.find_key(wanted text, secret_digest bytea)
RETURNS TABLE (
    tenant_id text, key_id text, name text, roles text[], faces text[], own_participants text[], may_ask text[],
    channels text[], requests_per_s real, concurrency integer, expires_at timestamptz, revoked_at timestamptz,
    suspended_at timestamptz, text_format text
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    named CONSTANT text := myria.name_tenant('*');
BEGIN
    RETURN QUERY
        SELECT k.tenant_id, k.key_id, k.name, k.roles, k.faces, k.own_participants, k.may_ask, k.channels,
               k.requests_per_s, k.concurrency, k.expires_at, k.revoked_at, t.suspended_at, k.text_format
        FROM myria.keys k JOIN myria.tenants t ON t.tenant_id = k.tenant_id
        WHERE k.key_id = $1 AND k.digest = $2;
    PERFORM myria.name_tenant(named);
END $$;
COMMENT ON FUNCTION myria.find_key IS 'The key with this id and this digest of its secret, whatever its tenant; no row without both.';

CREATE OR REPLACE FUNCTION myria.was_replaced(wanted text, secret_digest bytea) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    named CONSTANT text := myria.name_tenant('*');
    is_replaced boolean;
BEGIN
    is_replaced := EXISTS (
        SELECT FROM myria.keys k JOIN myria.keys n ON n.tenant_id = k.tenant_id AND n.replaces_key_id = k.key_id
        WHERE k.key_id = wanted AND k.digest = secret_digest);
    PERFORM myria.name_tenant(named);
    RETURN is_replaced;
END $$;
COMMENT ON FUNCTION myria.was_replaced IS 'Whether another key replaces the one with this id and this digest of its secret; false without both.';

CREATE OR REPLACE FUNCTION myria.find_token(shown bytea)
RETURNS TABLE (
    tenant_id text, key_id text, name text, roles text[], faces text[], own_participants text[], may_ask text[],
    channels text[], requests_per_s real, concurrency integer, expires_at timestamptz, revoked_at timestamptz,
    suspended_at timestamptz, text_format text
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    named CONSTANT text := myria.name_tenant('*');
BEGIN
    RETURN QUERY
        SELECT k.tenant_id, k.key_id, k.name,
               ARRAY(SELECT r FROM unnest(k.roles) AS r WHERE r = ANY (g.scopes)),
               ARRAY(SELECT f FROM unnest(k.faces) AS f WHERE f = g.face),
               k.own_participants, k.may_ask, k.channels, k.requests_per_s, k.concurrency,
               least(o.expires_at, k.expires_at), coalesce(k.revoked_at, g.ended_at), t.suspended_at,
               k.text_format
        FROM myria.oauth_tokens o
            JOIN myria.oauth_grants g ON g.tenant_id = o.tenant_id AND g.grant_id = o.grant_id
            JOIN myria.keys k ON k.tenant_id = g.tenant_id AND k.key_id = g.key_id
            JOIN myria.tenants t ON t.tenant_id = k.tenant_id
        WHERE o.digest = $1 AND NOT o.refreshes
        UNION ALL
        SELECT k.tenant_id, k.key_id, k.name, k.roles, k.faces, k.own_participants, k.may_ask, k.channels, k.requests_per_s,
               k.concurrency, least(s.expires_at, k.expires_at), coalesce(k.revoked_at, s.ended_at), t.suspended_at,
               k.text_format
        FROM myria.console_sessions s
            JOIN myria.keys k ON k.tenant_id = s.tenant_id AND k.key_id = s.key_id
            JOIN myria.tenants t ON t.tenant_id = k.tenant_id
        WHERE s.digest = $1;
    PERFORM myria.name_tenant(named);
END $$;
COMMENT ON FUNCTION myria.find_token IS 'What an access token or a session of the console stands for: its key, as far as a grant and its face go.';

CREATE OR REPLACE FUNCTION myria.begin_console_session(owner text, who text, key text, sealed bytea, new_session bytea,
    session_s double precision, most integer, caller text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('myria.console_sessions ' || owner || ' ' || who, 0));
    -- The oldest make room: who never signs out must not be kept from signing in.
    UPDATE myria.console_sessions s SET ended_at = clock_timestamp()
    WHERE s.tenant_id = owner AND s.digest IN (
        SELECT o.digest FROM myria.console_sessions o
        WHERE o.tenant_id = owner AND o.actor = who AND o.ended_at IS NULL AND o.expires_at > clock_timestamp()
        ORDER BY o.created_at DESC, o.digest OFFSET most - 1);
    INSERT INTO myria.console_sessions (tenant_id, digest, actor, key_id, sealed_token, expires_at)
    VALUES (owner, new_session, who, key, sealed, clock_timestamp() + make_interval(secs => session_s));
    -- Sessions that ended long ago make room, some at a time.
    DELETE FROM myria.console_sessions s WHERE (s.tenant_id, s.digest) IN (
        SELECT o.tenant_id, o.digest FROM myria.console_sessions o
        WHERE o.expires_at < clock_timestamp() - interval '1 day'
        ORDER BY o.expires_at LIMIT 100 FOR UPDATE SKIP LOCKED);
    INSERT INTO myria.access_log (tenant_id, kind, actor, action, target, outcome, address)
    VALUES (owner, 'act', who, 'console.sign_in', key, 'ok', caller);
END $$;
COMMENT ON FUNCTION myria.begin_console_session IS 'Begins a session of the console, and ends the oldest of the same key or subject beyond the most; for the two functions below alone.';
REVOKE EXECUTE ON FUNCTION myria.begin_console_session FROM PUBLIC;

CREATE OR REPLACE FUNCTION myria.console_sign_in(wanted_key text, secret_digest bytea, new_session bytea, session_s double precision,
    most integer, caller text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    named CONSTANT text := myria.name_tenant('*');
    owner text;
BEGIN
    SELECT k.tenant_id INTO owner
    FROM myria.keys k JOIN myria.tenants t ON t.tenant_id = k.tenant_id
    WHERE k.key_id = wanted_key AND k.digest = secret_digest AND k.revoked_at IS NULL AND t.suspended_at IS NULL
      AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp());
    IF owner IS NOT NULL THEN
        PERFORM myria.begin_console_session(owner, 'key:' || wanted_key, wanted_key, NULL, new_session, session_s, most, caller);
    END IF;
    PERFORM myria.name_tenant(named);
    RETURN owner IS NOT NULL;
END $$;
COMMENT ON FUNCTION myria.console_sign_in IS 'Begins a session of the console for who shows a valid key; false where the key is not valid.';

CREATE OR REPLACE FUNCTION myria.console_keep_token(wanted_tenant text, subject text, sealed bytea, new_session bytea,
    session_s double precision, most integer, caller text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    named CONSTANT text := myria.name_tenant('*');
    owner text;
BEGIN
    SELECT t.tenant_id INTO owner FROM myria.tenants t WHERE t.tenant_id = wanted_tenant AND t.suspended_at IS NULL;
    IF owner IS NOT NULL THEN
        PERFORM myria.begin_console_session(owner, 'token:' || subject, NULL, sealed, new_session, session_s, most, caller);
    END IF;
    PERFORM myria.name_tenant(named);
    RETURN owner IS NOT NULL;
END $$;
COMMENT ON FUNCTION myria.console_keep_token IS 'Begins a session of the console that can do nothing but keep a sealed token, which serving verifies at each use; false where the tenant is suspended.';

CREATE OR REPLACE FUNCTION myria.console_token(shown bytea)
RETURNS TABLE (owner text, sealed_token bytea, sealed_until timestamptz, sealed_ended_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    named CONSTANT text := myria.name_tenant('*');
BEGIN
    RETURN QUERY
        SELECT s.tenant_id, s.sealed_token, s.expires_at, s.ended_at FROM myria.console_sessions s
        WHERE s.digest = shown AND s.sealed_token IS NOT NULL;
    PERFORM myria.name_tenant(named);
END $$;
COMMENT ON FUNCTION myria.console_token IS 'The sealed token of the session of the console that is shown.';

CREATE OR REPLACE FUNCTION myria.console_sign_out(shown bytea, caller text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    named CONSTANT text := myria.name_tenant('*');
    ended myria.console_sessions;
BEGIN
    UPDATE myria.console_sessions s SET ended_at = clock_timestamp()
    WHERE s.digest = shown AND s.ended_at IS NULL
    RETURNING s.* INTO ended;
    IF FOUND THEN
        INSERT INTO myria.access_log (tenant_id, kind, actor, action, target, outcome, address)
        VALUES (ended.tenant_id, 'act', ended.actor, 'console.sign_out', ended.key_id, 'ok', caller);
    END IF;
    PERFORM myria.name_tenant(named);
    RETURN ended.actor IS NOT NULL;
END $$;
COMMENT ON FUNCTION myria.console_sign_out IS 'Ends the session of the console that is shown.';

CREATE OR REPLACE FUNCTION myria.oauth_client(wanted_id text, unused_s double precision)
RETURNS TABLE (client_id text, name text, redirect_uris text[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    named CONSTANT text := myria.name_tenant('*');
BEGIN
    RETURN QUERY
        SELECT c.client_id, c.name, c.redirect_uris FROM myria.oauth_clients c
        WHERE c.client_id = wanted_id
          AND (c.created_at > clock_timestamp() - make_interval(secs => unused_s)
               OR EXISTS (SELECT FROM myria.oauth_grants g WHERE g.client_id = c.client_id));
    PERFORM myria.name_tenant(named);
END $$;
COMMENT ON FUNCTION myria.oauth_client IS 'A client, unless nobody used it for so many seconds since it registered.';

CREATE OR REPLACE FUNCTION myria.oauth_register(wanted_id text, wanted_name text, uris text[], origin text, most_of_origin integer,
    most integer, unused_s double precision) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    named CONSTANT text := myria.name_tenant('*');
    since timestamptz := clock_timestamp() - make_interval(secs => unused_s);
    from_here bigint;
    many bigint;
BEGIN
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
    PERFORM myria.name_tenant(named);
    RETURN CASE WHEN from_here >= most_of_origin THEN 'origin' WHEN many >= most THEN 'all' ELSE 'kept' END;
END $$;
COMMENT ON FUNCTION myria.oauth_register IS 'Keeps a client and says kept; origin or all, where as many wait for their first use as may, from there or in all.';

CREATE OR REPLACE FUNCTION myria.oauth_grant(wanted_key text, secret_digest bytea, wanted_client text, wanted_face text,
    wanted_scopes text[], uri text, wanted_challenge text, new_code bytea, code_s double precision,
    most_of_key integer, most_of_tenant integer) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    named CONSTANT text := myria.name_tenant('*');
    owner text;
    of_key bigint;
    of_tenant bigint;
    made boolean := false;
BEGIN
    SELECT k.tenant_id INTO owner FROM myria.keys k WHERE k.key_id = wanted_key AND k.digest = secret_digest;
    PERFORM pg_advisory_xact_lock(hashtextextended('myria.oauth_grants ' || owner, 0));
    SELECT count(*) FILTER (WHERE g.key_id = wanted_key), count(*) INTO of_key, of_tenant
    FROM myria.oauth_grants g
    WHERE g.tenant_id = owner AND g.ended_at IS NULL AND g.expires_at > clock_timestamp();
    IF (of_key < most_of_key) IS NOT FALSE AND (of_tenant < most_of_tenant) IS NOT FALSE THEN
        -- Grants that ended long ago make room, some at a time.
        DELETE FROM myria.oauth_grants g WHERE (g.tenant_id, g.grant_id) IN (
            SELECT o.tenant_id, o.grant_id FROM myria.oauth_grants o
            WHERE o.expires_at < clock_timestamp() - interval '1 day'
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
        UPDATE myria.oauth_clients c SET registered_from = NULL
        WHERE made AND c.client_id = wanted_client AND c.registered_from IS NOT NULL;
    END IF;
    PERFORM myria.name_tenant(named);
    RETURN CASE WHEN of_key >= most_of_key THEN 'key' WHEN of_tenant >= most_of_tenant THEN 'tenant'
                WHEN made THEN 'made' ELSE 'refused' END;
END $$;
COMMENT ON FUNCTION myria.oauth_grant IS 'Keeps what a key''s bearer allows a client, and its code: made, or refused where the key cannot allow it; key or tenant, where that has as many grants as it may.';

CREATE OR REPLACE FUNCTION myria.oauth_exchange(
    shown bytea, refreshing boolean, wanted_client text, uri text, wanted_challenge text, wanted_face text,
    wanted_scopes text[], new_access bytea, new_refresh bytea, access_s double precision, refresh_s double precision)
RETURNS text[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    named CONSTANT text := myria.name_tenant('*');
    given myria.oauth_grants;
    token myria.oauth_tokens;
    allowed text[];
BEGIN
    <<exchange>>
    BEGIN
        IF refreshing THEN
            SELECT * INTO token FROM myria.oauth_tokens o WHERE o.digest = shown AND o.refreshes;
            SELECT * INTO given FROM myria.oauth_grants g
                WHERE g.tenant_id = token.tenant_id AND g.grant_id = token.grant_id FOR UPDATE;
            -- Read again under the grant's lock: two exchanges of one token at once must not both succeed.
            SELECT * INTO token FROM myria.oauth_tokens o WHERE o.digest = shown AND o.refreshes;
        ELSE
            SELECT * INTO given FROM myria.oauth_grants g WHERE g.code_digest = shown FOR UPDATE;
        END IF;
        EXIT exchange WHEN given.grant_id IS NULL OR given.ended_at IS NOT NULL
            OR given.client_id IS DISTINCT FROM wanted_client;
        IF NOT (CASE WHEN refreshing THEN token.used_at IS NULL
                ELSE given.code_used_at IS NULL AND given.redirect_uri = uri AND given.challenge = wanted_challenge END) THEN
            -- Shown twice, or by somebody who did not ask for it: one of the two stole it, so nobody keeps anything.
            UPDATE myria.oauth_grants g SET ended_at = clock_timestamp(), ended_reason = CASE
                WHEN refreshing THEN 'refresh token used twice'
                WHEN given.code_used_at IS NOT NULL THEN 'code used twice' ELSE 'code shown by another' END
            WHERE g.tenant_id = given.tenant_id AND g.grant_id = given.grant_id;
            EXIT exchange;
        END IF;
        EXIT exchange WHEN CASE WHEN refreshing THEN token.expires_at ELSE given.code_expires_at END <= clock_timestamp()
            OR given.face <> coalesce(wanted_face, given.face) OR NOT given.scopes @> coalesce(wanted_scopes, given.scopes)
            OR NOT EXISTS (
                SELECT FROM myria.keys k JOIN myria.tenants t ON t.tenant_id = k.tenant_id
                WHERE k.tenant_id = given.tenant_id AND k.key_id = given.key_id AND k.revoked_at IS NULL
                  AND t.suspended_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp()));
        IF refreshing THEN
            UPDATE myria.oauth_tokens o SET used_at = clock_timestamp()
            WHERE o.tenant_id = token.tenant_id AND o.digest = token.digest;
            DELETE FROM myria.oauth_tokens o WHERE o.tenant_id = given.tenant_id AND o.grant_id = given.grant_id
                AND NOT o.refreshes AND o.expires_at <= clock_timestamp();
        END IF;
        UPDATE myria.oauth_grants g SET code_used_at = coalesce(g.code_used_at, clock_timestamp()),
            expires_at = clock_timestamp() + make_interval(secs => refresh_s)
        WHERE g.tenant_id = given.tenant_id AND g.grant_id = given.grant_id;
        INSERT INTO myria.oauth_tokens (tenant_id, digest, grant_id, refreshes, expires_at) VALUES
            (given.tenant_id, new_access, given.grant_id, false, clock_timestamp() + make_interval(secs => access_s)),
            (given.tenant_id, new_refresh, given.grant_id, true, clock_timestamp() + make_interval(secs => refresh_s));
        allowed := given.scopes;
    END exchange;
    PERFORM myria.name_tenant(named);
    RETURN allowed;
END $$;
COMMENT ON FUNCTION myria.oauth_exchange IS 'A code or a refresh token, once, for an access and a refresh token; the scopes, or NULL.';

CREATE OR REPLACE FUNCTION myria.oauth_revoke(shown bytea, wanted_client text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    named CONSTANT text := myria.name_tenant('*');
    ended boolean;
BEGIN
    UPDATE myria.oauth_grants g SET ended_at = clock_timestamp(), ended_reason = 'revoked by the client'
    FROM myria.oauth_tokens o
    WHERE o.digest = shown AND g.tenant_id = o.tenant_id AND g.grant_id = o.grant_id AND g.client_id = wanted_client
      AND g.ended_at IS NULL;
    ended := FOUND;
    PERFORM myria.name_tenant(named);
    RETURN ended;
END $$;
COMMENT ON FUNCTION myria.oauth_revoke IS 'Ends the grant of a token that this client shows.';

CREATE OR REPLACE FUNCTION myria.note_grant() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    given myria.oauth_grants;
    what text;
BEGIN
    IF TG_TABLE_NAME = 'oauth_tokens' THEN
        SELECT * INTO given FROM myria.oauth_grants g WHERE g.tenant_id = NEW.tenant_id AND g.grant_id = NEW.grant_id;
        what := CASE WHEN EXISTS (SELECT FROM myria.oauth_tokens o WHERE o.tenant_id = NEW.tenant_id
                    AND o.grant_id = NEW.grant_id AND o.refreshes AND o.used_at IS NOT NULL)
                THEN 'grant.refresh' ELSE 'grant.exchange' END;
    ELSE
        given := NEW;
        what := CASE WHEN TG_OP = 'INSERT' THEN 'grant.issue'
                     WHEN NEW.ended_reason = 'revoked by the client' THEN 'grant.revoke' ELSE 'grant.misuse' END;
    END IF;
    INSERT INTO myria.access_log (tenant_id, kind, actor, action, target, outcome, face, details)
    SELECT given.tenant_id, CASE WHEN what = 'grant.misuse' THEN 'refusal' ELSE 'act' END,
           CASE WHEN what = 'grant.issue' THEN 'key:' || given.key_id ELSE 'client:' || given.client_id END,
           what, given.grant_id::text, CASE WHEN what = 'grant.misuse' THEN 'credential_invalid' ELSE 'ok' END, given.face,
           jsonb_build_object('key_id', given.key_id, 'client_id', given.client_id,
               'client', (SELECT c.name FROM myria.oauth_clients c WHERE c.client_id = given.client_id),
               'scopes', to_jsonb(given.scopes))
               || CASE WHEN given.ended_reason IS NULL THEN '{}' ELSE jsonb_build_object('reason', given.ended_reason) END;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION myria.note_grant IS 'Writes what people and programs make of a grant into the journal of access; never a secret.';
