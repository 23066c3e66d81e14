-- What an administrator may do through serving with the keys, the grants and the journal of its tenant, which serving cannot
-- read or change by itself. The transaction names the tenant, as every one does, and row-level security binds the owner of
-- these functions to it. Each of them begins with the proof, and does nothing without.

-- A key of that tenant with the role and the API admin, or a session of the console that came from one. Tokens of programs do
-- not count: what a program made with one would outlive its grant.
CREATE OR REPLACE FUNCTION myria.administrator(shown_key text, shown_digest bytea) RETURNS SETOF myria.keys
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY
        SELECT k.*
        FROM (SELECT shown_key AS key_id WHERE shown_key <> ''
              UNION ALL
              SELECT s.key_id FROM myria.console_sessions s
              WHERE shown_key = '' AND s.digest = shown_digest AND s.ended_at IS NULL
                AND s.expires_at > clock_timestamp()) proved
            JOIN myria.keys k ON k.key_id = proved.key_id AND k.tenant_id = current_setting('myria.tenant', true)
            JOIN myria.tenants t ON t.tenant_id = k.tenant_id
        WHERE (shown_key = '' OR k.digest = shown_digest) AND k.revoked_at IS NULL AND t.suspended_at IS NULL
          AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())
          AND 'admin' = ANY (k.roles) AND 'admin' = ANY (k.faces);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no administrator of this tenant shows this' USING ERRCODE = 'MYR04';
    END IF;
END $$;
COMMENT ON FUNCTION myria.administrator IS 'The key of the administrator of the tenant that the transaction names, who shows it, or a session of the console that came from it; for the functions below alone.';
REVOKE EXECUTE ON FUNCTION myria.administrator FROM PUBLIC;

CREATE OR REPLACE FUNCTION myria.covers(pattern text, wanted text) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE WHEN strpos(pattern, '*') = 0 THEN wanted = pattern
        ELSE starts_with(split_part(wanted, '*', 1), split_part(pattern, '*', 1))
             AND starts_with(reverse(split_part(wanted, '*', -1)), reverse(split_part(pattern, '*', -1)))
             AND length(wanted) >= length(pattern) - 1 END
$$;
COMMENT ON FUNCTION myria.covers IS 'Whether a pattern of participants matches a name, or every name that another pattern matches.';

-- Fewer participants see more (an event is shown if all who ask are among those who share it), so a key within another
-- names all of the other's own, and somebody of its patterns where the other must.
CREATE OR REPLACE FUNCTION myria.beyond(maker myria.keys, made myria.keys) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE
        WHEN NOT made.roles <@ maker.roles THEN 'roles'
        WHEN NOT made.faces <@ maker.faces THEN 'faces'
        WHEN NOT made.own_participants @> maker.own_participants
            OR EXISTS (SELECT FROM unnest(made.own_participants) AS wanted
                       WHERE wanted <> ALL (maker.own_participants)
                         AND NOT EXISTS (SELECT FROM unnest(maker.may_ask) AS pattern WHERE myria.covers(pattern, wanted)))
            OR EXISTS (SELECT FROM unnest(made.may_ask) AS wanted
                       WHERE NOT EXISTS (SELECT FROM unnest(maker.may_ask) AS pattern WHERE myria.covers(pattern, wanted)))
            OR cardinality(maker.may_ask) > 0 AND made.roles && ARRAY['append', 'read']
                AND made.own_participants <@ maker.own_participants AND cardinality(made.may_ask) = 0 THEN 'participants'
        WHEN maker.channels IS NOT NULL AND NOT coalesce(made.channels <@ maker.channels, false) THEN 'channels'
        WHEN made.requests_per_s IS DISTINCT FROM least(made.requests_per_s, maker.requests_per_s)
            OR made.concurrency IS DISTINCT FROM least(made.concurrency, maker.concurrency) THEN 'limits'
    END
$$;
COMMENT ON FUNCTION myria.beyond IS 'What a key may that another may not: roles, faces, participants, channels or limits; NULL where nothing.';

CREATE OR REPLACE FUNCTION myria.note_of_administrator(maker myria.keys, action text, target text, details jsonb, why text, caller text)
RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
    INSERT INTO myria.access_log (tenant_id, kind, actor, action, target, outcome, face, details, address)
    VALUES (maker.tenant_id, 'act', 'key:' || maker.key_id, action, target, 'ok', 'admin',
            details || CASE WHEN why = '' THEN '{}' ELSE jsonb_build_object('reason', left(why, 500)) END, caller)
$$;
COMMENT ON FUNCTION myria.note_of_administrator IS 'Writes what an administrator did into the journal of access.';

CREATE OR REPLACE FUNCTION myria.keys_for(shown_key text, shown_digest bytea, wanted text, before text, most integer)
RETURNS TABLE (
    key_id text, name text, description text, state text, roles text[], faces text[], own text[], may_ask text[],
    channels text[], requests_per_s real, concurrency integer, created_by text, replaces text, replaced_by text,
    created_at timestamptz, expires_at timestamptz, revoked_at timestamptz, last_used_at timestamptz, sessions bigint,
    grants bigint, is_maker boolean, beyond text
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    maker CONSTANT myria.keys := (SELECT a FROM myria.administrator(shown_key, shown_digest) AS a);
BEGIN
    RETURN QUERY
        SELECT k.key_id, k.name, k.description,
               CASE WHEN k.revoked_at IS NOT NULL THEN 'revoked'
                    WHEN k.expires_at <= clock_timestamp() THEN 'expired'
                    ELSE 'active' END,
               k.roles, k.faces, k.own_participants, k.may_ask, k.channels, k.requests_per_s, k.concurrency, k.created_by,
               k.replaces_key_id,
               (SELECT n.key_id FROM myria.keys n WHERE n.tenant_id = k.tenant_id AND n.replaces_key_id = k.key_id
                ORDER BY n.created_at LIMIT 1),
               k.created_at, k.expires_at, k.revoked_at, u.last_used_at,
               (SELECT count(*) FROM myria.console_sessions s WHERE s.tenant_id = k.tenant_id AND s.key_id = k.key_id
                    AND s.ended_at IS NULL AND s.expires_at > clock_timestamp()),
               (SELECT count(*) FROM myria.oauth_grants g WHERE g.tenant_id = k.tenant_id AND g.key_id = k.key_id
                    AND g.ended_at IS NULL AND g.expires_at > clock_timestamp()),
               k.key_id = maker.key_id, CASE WHEN k.key_id <> maker.key_id THEN myria.beyond(maker, k::myria.keys) END
        FROM (SELECT p.* FROM myria.keys p
              WHERE p.tenant_id = maker.tenant_id AND (wanted IS NULL OR p.key_id = wanted)
                AND (before IS NULL OR (p.created_at, p.key_id) < (
                    SELECT b.created_at, b.key_id FROM myria.keys b WHERE b.tenant_id = maker.tenant_id AND b.key_id = before))
              ORDER BY p.created_at DESC, p.key_id DESC
              LIMIT most) k
            LEFT JOIN myria.key_uses u ON u.tenant_id = k.tenant_id AND u.key_id = k.key_id
        ORDER BY k.created_at DESC, k.key_id DESC;
END $$;
COMMENT ON FUNCTION myria.keys_for IS 'The keys of an administrator''s tenant, newest first, or one; never a digest. `beyond` says what one may that the administrator may not.';

CREATE OR REPLACE FUNCTION myria.key_names_for(shown_key text, shown_digest bytea, wanted text[])
RETURNS TABLE (key_id text, name text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    maker CONSTANT myria.keys := (SELECT a FROM myria.administrator(shown_key, shown_digest) AS a);
BEGIN
    RETURN QUERY SELECT k.key_id, k.name FROM myria.keys k WHERE k.tenant_id = maker.tenant_id AND k.key_id = ANY (wanted);
END $$;
COMMENT ON FUNCTION myria.key_names_for IS 'What some keys of an administrator''s tenant are called, those that have ended too.';

-- Journals and lists show keys by their names, so no two that are alive have one, but a key and those that replace it. Whoever
-- makes a key asks this first, in the same transaction; others wait for its end.
CREATE OR REPLACE FUNCTION myria.living_key_named(owner text, wanted text) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('myria.keys ' || owner, 0));
    RETURN (SELECT k.key_id FROM myria.keys k
            WHERE k.tenant_id = owner AND k.name = wanted AND k.revoked_at IS NULL
              AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())
            ORDER BY k.created_at DESC, k.key_id DESC LIMIT 1);
END $$;
COMMENT ON FUNCTION myria.living_key_named IS 'The id of the newest key of a tenant that has this name and has not ended, or NULL; none is made until the transaction has ended.';

CREATE OR REPLACE FUNCTION myria.create_key_for(shown_key text, shown_digest bytea, new_id text, new_digest bytea, new_name text,
    new_roles text[], new_faces text[], new_own text[], new_may_ask text[], expires_s double precision, why text, caller text,
    most integer) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    maker CONSTANT myria.keys := (SELECT a FROM myria.administrator(shown_key, shown_digest) AS a);
    made myria.keys := maker;
    surplus text;
    is_taken boolean;
BEGIN
    -- What is not asked for is as the maker's: channels, limits, and the format of texts.
    made.key_id := new_id;
    made.digest := new_digest;
    made.name := new_name;
    made.description := NULL;
    made.roles := new_roles;
    made.faces := new_faces;
    made.own_participants := new_own;
    made.may_ask := new_may_ask;
    made.created_at := clock_timestamp();
    made.created_by := 'key:' || maker.key_id;
    made.expires_at := least(made.created_at + make_interval(secs => expires_s), maker.expires_at);
    made.replaces_key_id := NULL;
    surplus := myria.beyond(maker, made);
    IF surplus IS NOT NULL THEN
        RETURN surplus;
    END IF;
    is_taken := myria.living_key_named(maker.tenant_id, new_name) IS NOT NULL;
    -- First: a form that is sent again is told that it made its key, not that the key's name is taken.
    IF EXISTS (SELECT FROM myria.keys k WHERE k.tenant_id = maker.tenant_id AND k.key_id = new_id) THEN
        RETURN 'exists';
    END IF;
    IF is_taken THEN
        RETURN 'named';
    END IF;
    IF (SELECT count(*) FROM myria.keys k WHERE k.tenant_id = maker.tenant_id AND k.revoked_at IS NULL
            AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())) >= most THEN
        RETURN 'many';
    END IF;
    INSERT INTO myria.keys SELECT made.* ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN 'exists';
    END IF;
    PERFORM myria.note_of_administrator(maker, 'key.create', new_id, jsonb_build_object('name', new_name,
        'roles', new_roles, 'faces', new_faces, 'as', new_own, 'may_ask', new_may_ask), why, caller);
    RETURN 'made';
END $$;
COMMENT ON FUNCTION myria.create_key_for IS 'Makes a key that may no more than its administrator''s, and ends no later: made; exists, where the id was used; named, where a living key has its name; many; or what it would be beyond.';

CREATE OR REPLACE FUNCTION myria.rotate_key_for(shown_key text, shown_digest bytea, wanted text, new_id text, new_digest bytea,
    overlap_s double precision, why text, caller text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    maker CONSTANT myria.keys := (SELECT a FROM myria.administrator(shown_key, shown_digest) AS a);
    old myria.keys;
    made myria.keys;
    hindrance text;
BEGIN
    SELECT * INTO old FROM myria.keys k WHERE k.tenant_id = maker.tenant_id AND k.key_id = wanted FOR UPDATE;
    hindrance := CASE
        WHEN old.key_id IS NULL THEN 'none'
        WHEN EXISTS (SELECT FROM myria.keys k WHERE k.tenant_id = maker.tenant_id AND k.key_id = new_id) THEN 'exists'
        WHEN old.revoked_at IS NOT NULL OR old.expires_at <= clock_timestamp() THEN 'ended'
        WHEN EXISTS (SELECT FROM myria.keys k WHERE k.tenant_id = maker.tenant_id AND k.replaces_key_id = wanted) THEN 'replaced'
        WHEN old.key_id <> maker.key_id THEN myria.beyond(maker, old)
    END;
    IF hindrance IS NOT NULL THEN
        RETURN hindrance;
    END IF;
    made := old;
    made.key_id := new_id;
    made.digest := new_digest;
    made.created_at := clock_timestamp();
    made.created_by := 'key:' || maker.key_id;
    made.expires_at := least(made.created_at + (old.expires_at - old.created_at), maker.expires_at);
    made.replaces_key_id := old.key_id;
    INSERT INTO myria.keys SELECT made.* ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN 'exists';
    END IF;
    UPDATE myria.keys k
    SET expires_at = least(k.expires_at, clock_timestamp() + make_interval(secs => greatest(overlap_s, 0)))
    WHERE k.tenant_id = maker.tenant_id AND k.key_id = wanted;
    PERFORM myria.note_of_administrator(maker, 'key.rotate', wanted,
        jsonb_build_object('new_key', new_id, 'overlap_s', overlap_s), why, caller);
    RETURN 'made';
END $$;
COMMENT ON FUNCTION myria.rotate_key_for IS 'Replaces a key that may no more than its administrator''s: made; none; ended; replaced, where it was before; exists, where the new id was used; or what it is beyond.';

CREATE OR REPLACE FUNCTION myria.revoke_key_for(shown_key text, shown_digest bytea, wanted text, why text, caller text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    maker CONSTANT myria.keys := (SELECT a FROM myria.administrator(shown_key, shown_digest) AS a);
    old myria.keys;
BEGIN
    SELECT * INTO old FROM myria.keys k WHERE k.tenant_id = maker.tenant_id AND k.key_id = wanted FOR UPDATE;
    IF old.key_id IS NOT NULL AND old.revoked_at IS NULL THEN
        UPDATE myria.keys k SET revoked_at = clock_timestamp() WHERE k.tenant_id = maker.tenant_id AND k.key_id = wanted;
        PERFORM myria.note_of_administrator(maker, 'key.revoke', wanted, '{}', why, caller);
    END IF;
    RETURN CASE WHEN old.key_id IS NULL THEN 'none' WHEN old.revoked_at IS NOT NULL THEN 'ended' ELSE 'revoked' END;
END $$;
COMMENT ON FUNCTION myria.revoke_key_for IS 'Revokes a key of an administrator''s tenant, also one that may more: revoked; ended, where it was before; none.';

CREATE OR REPLACE FUNCTION myria.grants_for(shown_key text, shown_digest bytea, wanted uuid, before uuid, most integer)
RETURNS TABLE (
    grant_id text, state text, client text, client_id text, key_id text, key text, face text, scopes text[], ended_reason text,
    created_at timestamptz, last_used_at timestamptz, expires_at timestamptz, ended_at timestamptz
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    maker CONSTANT myria.keys := (SELECT a FROM myria.administrator(shown_key, shown_digest) AS a);
BEGIN
    RETURN QUERY
        SELECT g.grant_id::text,
               CASE WHEN g.ended_at IS NOT NULL THEN 'ended'
                    WHEN g.expires_at <= clock_timestamp() THEN 'expired'
                    WHEN k.revoked_at IS NOT NULL OR k.expires_at <= clock_timestamp() THEN 'key ended'
                    WHEN g.code_used_at IS NULL THEN 'waiting'
                    ELSE 'active' END,
               c.name, g.client_id, g.key_id, k.name, g.face, g.scopes, g.ended_reason, g.created_at,
               greatest(g.code_used_at, (SELECT max(o.used_at) FROM myria.oauth_tokens o
                                         WHERE o.tenant_id = g.tenant_id AND o.grant_id = g.grant_id)),
               g.expires_at, g.ended_at
        FROM (SELECT p.* FROM myria.oauth_grants p
              WHERE p.tenant_id = maker.tenant_id AND (wanted IS NULL OR p.grant_id = wanted)
                AND (before IS NULL OR (p.created_at, p.grant_id) < (
                    SELECT b.created_at, b.grant_id FROM myria.oauth_grants b
                    WHERE b.tenant_id = maker.tenant_id AND b.grant_id = before))
              ORDER BY p.created_at DESC, p.grant_id DESC
              LIMIT most) g
            JOIN myria.keys k ON k.tenant_id = g.tenant_id AND k.key_id = g.key_id
            JOIN myria.oauth_clients c ON c.client_id = g.client_id
        ORDER BY g.created_at DESC, g.grant_id DESC;
END $$;
COMMENT ON FUNCTION myria.grants_for IS 'What programs were allowed with keys of an administrator''s tenant, newest first, or one grant.';

CREATE OR REPLACE FUNCTION myria.end_grant_for(shown_key text, shown_digest bytea, wanted uuid, why text, caller text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    maker CONSTANT myria.keys := (SELECT a FROM myria.administrator(shown_key, shown_digest) AS a);
    given myria.oauth_grants;
BEGIN
    SELECT * INTO given FROM myria.oauth_grants g WHERE g.tenant_id = maker.tenant_id AND g.grant_id = wanted FOR UPDATE;
    -- An update of no row would still tell every process to read keys and grants anew.
    IF given.grant_id IS NOT NULL AND given.ended_at IS NULL THEN
        UPDATE myria.oauth_grants g SET ended_at = clock_timestamp(), ended_reason = 'revoked by key:' || maker.key_id
        WHERE g.tenant_id = given.tenant_id AND g.grant_id = given.grant_id;
        PERFORM myria.note_of_administrator(maker, 'grant.revoke', given.grant_id::text, jsonb_build_object(
            'key_id', given.key_id, 'client_id', given.client_id, 'scopes', given.scopes,
            'client', (SELECT c.name FROM myria.oauth_clients c WHERE c.client_id = given.client_id)), why, caller);
    END IF;
    RETURN CASE WHEN given.grant_id IS NULL THEN 'none' WHEN given.ended_at IS NOT NULL THEN 'ended' ELSE 'revoked' END;
END $$;
COMMENT ON FUNCTION myria.end_grant_for IS 'Ends a grant of an administrator''s tenant with all its tokens: revoked; ended, where it was before; none.';

-- A call looks at 10,000 entries before an entry, and says in each row how far it came if there may be more; where none of
-- them is sought, one row without an entry says so. An attempt may be written a little after it was made.
CREATE OR REPLACE FUNCTION myria.audit_for(
    wanted_key text, secret_digest bytea, sought text, sought_as text[], by_actor text, of_actions text[], with_outcome text,
    since timestamptz, until timestamptz, before bigint, most integer
)
RETURNS TABLE (
    entry_id bigint, at timestamptz, kind text, actor text, action text, target text, outcome text, face text, address text,
    times integer, details jsonb, looked_to bigint
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    maker CONSTANT myria.keys := (SELECT a FROM myria.administrator(wanted_key, secret_digest) AS a);
    begin_before bigint := before;
BEGIN
    IF before IS NULL AND until IS NOT NULL THEN
        SELECT l.entry_id + 1 INTO begin_before FROM myria.access_log l
        WHERE l.tenant_id = maker.tenant_id AND l.at < until + interval '1 minute'
        ORDER BY l.at DESC LIMIT 1;
        begin_before := coalesce(begin_before, 0);
    END IF;
    RETURN QUERY
        WITH looked AS (
            SELECT * FROM myria.access_log l
            WHERE l.tenant_id = maker.tenant_id AND (begin_before IS NULL OR l.entry_id < begin_before)
            ORDER BY l.entry_id DESC
            LIMIT 10000
        ), bound AS (
            SELECT CASE WHEN count(*) = 10000 AND (since IS NULL OR min(l.at) > since - interval '1 minute')
                        THEN min(l.entry_id) END AS looked_to
            FROM looked l
        ), wanted AS (
            SELECT l.* FROM looked l
            LEFT JOIN myria.keys doer ON doer.tenant_id = l.tenant_id AND l.actor = 'key:' || doer.key_id
            LEFT JOIN myria.keys target
                ON target.tenant_id = l.tenant_id AND target.key_id = l.target AND starts_with(l.action, 'key.')
            WHERE (sought = ''
                   OR strpos(lower(concat_ws(' ', l.kind, l.actor, doer.name, l.action, l.target, target.name, l.outcome,
                                             l.address, l.details)), lower(sought)) > 0
                   OR sought_as && ARRAY[l.action, l.action || '.' || (l.details->>'decision'), l.target])
              AND (by_actor = '' OR strpos(lower(concat_ws(' ', l.actor, doer.name)), lower(by_actor)) > 0)
              AND (of_actions = '{}' OR of_actions && ARRAY[l.action, l.action || '.' || (l.details->>'decision'), l.target])
              AND (with_outcome = '' OR l.outcome = with_outcome)
              AND (since IS NULL OR l.at >= since) AND (until IS NULL OR l.at < until)
            ORDER BY l.entry_id DESC
            LIMIT most
        )
        SELECT w.entry_id, w.at, w.kind, w.actor, w.action, w.target, w.outcome, w.face, w.address, w.times, w.details,
               b.looked_to
        FROM bound b LEFT JOIN wanted w ON true
        ORDER BY w.entry_id DESC;
END $$;
COMMENT ON FUNCTION myria.audit_for IS 'What was administered, and which attempts were refused, in an administrator''s tenant, newest first, among 10,000 entries.';
