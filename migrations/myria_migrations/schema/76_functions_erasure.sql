-- What erasure may do to the log and to what was built of it, and how keys stay where they are.

CREATE OR REPLACE FUNCTION myria.refused_among(tenant text, keys bytea[]) RETURNS bytea[]
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

CREATE OR REPLACE FUNCTION myria.refuse_keys_from_now() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE myria.tenants t SET refuses_keys = true WHERE t.tenant_id = NEW.tenant_id;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION myria.refuse_keys_from_now IS 'Notes that a tenant has the secret without which no key is refused.';

-- A key by its id and the digest of its secret; an access token by its digest, with an empty id.
CREATE OR REPLACE FUNCTION myria.officer(tenant text, key text, digest bytea) RETURNS text
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

CREATE OR REPLACE FUNCTION myria.prove_erasure(tenant text, erasure text, key text, digest bytea) RETURNS boolean
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

CREATE OR REPLACE FUNCTION myria.erased_places() RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
    SELECT ARRAY['events', 'renderings', 'search_blocks', 'subject_nodes', 'subject_roots', 'subject_holders', 'notes',
        'note_looks', 'note_usage', 'note_evaluations', 'note_evaluations_due', 'registrations',
        'turns', 'turn_sessions', 'turn_extractions_due', 'turn_shadows', 'tool_feedback', 'sessions', 'unit_plans',
        'llm_calls', 'builds', 'build_tasks', 'build_units', 'snapshots', 'rebuild_requests', 'pointer_moves', 'tenants',
        'access_log', 'call_log', 'erasures', 'erased_words', 'text_vectors', 'event_vectors', 'note_relations']
$$;
COMMENT ON FUNCTION myria.erased_places IS 'The tables of which an erasure changes or removes rows.';

-- ANALYZE keeps common values and bounds of columns, whole payloads among them. Only the owner of a table may run it. Of an
-- empty table it leaves what it had; from PostgreSQL 18 on that can be taken away.
CREATE OR REPLACE FUNCTION myria.sample_anew(place text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    named    text;
    is_empty boolean;
    attribute text;
BEGIN
    IF place <> ALL (myria.erased_places()) THEN
        RAISE EXCEPTION 'no erasure touches %', place;
    END IF;
    EXECUTE format('ANALYZE myria.%I', place);
    IF current_setting('server_version_num')::integer < 180000 THEN
        RETURN;
    END IF;
    named := myria.name_tenant('*');
    EXECUTE format('SELECT NOT EXISTS (SELECT FROM myria.%I)', place) INTO is_empty;
    PERFORM myria.name_tenant(named);
    IF is_empty THEN
        FOR attribute IN SELECT a.attname FROM pg_attribute a
                         WHERE a.attrelid = format('myria.%I', place)::regclass AND a.attnum > 0 AND NOT a.attisdropped LOOP
            PERFORM pg_clear_attribute_stats('myria', place, attribute, false);
        END LOOP;
    END IF;
END $$;
COMMENT ON FUNCTION myria.sample_anew IS 'Lets PostgreSQL take the statistics of a table anew, so that they hold nothing of rows that are gone.';
REVOKE EXECUTE ON FUNCTION myria.sample_anew FROM PUBLIC;

-- The mark of a turn names the notes of its facts, whose ids are digests of what the facts are about.
CREATE OR REPLACE FUNCTION myria.forget_digests(tenant text, numbers bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    gone     text[];
    contexts text[];
BEGIN
    SELECT array_agg(DISTINCT e.payload->'note'->>'id'), array_agg(DISTINCT e.context_id) INTO gone, contexts
    FROM unnest(numbers) AS n
    JOIN myria.erased x ON x.tenant_id = tenant AND x.event_seq = n AND x.erased_at IS NULL
    JOIN myria.events e ON e.tenant_id = tenant AND e.event_seq = n AND e.type = 'myria.note';
    IF gone IS NULL THEN
        RETURN;
    END IF;
    UPDATE myria.events m
    SET payload = jsonb_set(m.payload, '{turn,facts}', coalesce(
        (SELECT jsonb_agg(f.id ORDER BY f.place) FROM jsonb_array_elements(m.payload->'turn'->'facts') WITH ORDINALITY AS f (id, place)
         WHERE f.id #>> '{}' <> ALL (gone)), '[]'))
    FROM myria.turns t
    WHERE t.tenant_id = tenant AND t.context_id = ANY (contexts)
      AND m.tenant_id = tenant AND m.event_seq = t.event_seq AND m.type = 'myria.turn'
      AND jsonb_typeof(m.payload->'turn'->'facts') = 'array' AND m.payload->'turn'->'facts' ?| gone;
END $$;
COMMENT ON FUNCTION myria.forget_digests IS 'Takes digests of some events that are listed in an erasure, and have words still, out of events that stay.';
REVOKE EXECUTE ON FUNCTION myria.forget_digests FROM PUBLIC;

-- `made` are hashes of content behind the time of each event, with which somebody could prove a guess; the time stays.
CREATE OR REPLACE FUNCTION myria.keyed_event_ids(tenant text, made text[]) RETURNS text[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    own_secret bytea;
BEGIN
    IF NOT EXISTS (SELECT FROM myria.import_secrets s WHERE s.tenant_id = tenant) THEN
        INSERT INTO myria.import_secrets (tenant_id, secret)
        VALUES (tenant, sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')))
        ON CONFLICT DO NOTHING;
    END IF;
    SELECT s.secret INTO own_secret FROM myria.import_secrets s WHERE s.tenant_id = tenant;
    RETURN ARRAY(
        SELECT left(m.id, 16) || left(encode(sha256(own_secret || convert_to(m.id, 'UTF8')), 'hex'), 20)
        FROM unnest(made) WITH ORDINALITY AS m (id, place) ORDER BY m.place);
END $$;
COMMENT ON FUNCTION myria.keyed_event_ids IS 'The ids under which events are imported whose content alone identifies them.';
REVOKE EXECUTE ON FUNCTION myria.keyed_event_ids FROM PUBLIC;

-- Whoever verifies needs no key: this tells whether a receipt follows from the one before it, and nothing else.
CREATE OR REPLACE FUNCTION myria.receipt_holds(tenant text, previous bytea, content bytea, mac bytea) RETURNS boolean
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

-- A tool shows the key of a receipt for five minutes, so that a lost answer can be asked for again; then it is gone.
CREATE OR REPLACE FUNCTION myria.show_receipt_key(tenant text, erasure text, asker text) RETURNS bytea
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    shown bytea;
BEGIN
    IF tenant IS DISTINCT FROM current_setting('myria.tenant', true) THEN
        RETURN NULL;
    END IF;
    UPDATE myria.erasures e
    SET receipt_key = CASE WHEN e.key_shown_at < clock_timestamp() - interval '5 minutes' THEN NULL ELSE e.receipt_key END,
        key_shown_at = coalesce(e.key_shown_at, clock_timestamp())
    WHERE e.tenant_id = tenant AND e.erasure_id = erasure AND e.actor = asker AND e.state = 'done' AND e.receipt_key IS NOT NULL
    RETURNING e.receipt_key INTO shown;
    RETURN shown;
END $$;
COMMENT ON FUNCTION myria.show_receipt_key IS 'The key of a receipt, for who asked for the erasure, for five minutes from the first time on.';

CREATE OR REPLACE FUNCTION myria.move_erasure_epoch() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO myria.erasure_epochs (tenant_id) SELECT DISTINCT c.tenant_id FROM changed c
    ON CONFLICT (tenant_id) DO UPDATE SET epoch = erasure_epochs.epoch + 1, moved_at = clock_timestamp();
    RETURN NULL;
END $$;

-- Of all tenants: it tells names and numbers alone. A transaction ends within two minutes, so five cover late commits.
CREATE OR REPLACE FUNCTION myria.moved_erasure_epochs() RETURNS TABLE (tenant_id text, epoch bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    named CONSTANT text := myria.name_tenant('*');
BEGIN
    RETURN QUERY
        SELECT p.tenant_id, p.epoch FROM myria.erasure_epochs p WHERE p.moved_at > clock_timestamp() - interval '5 minutes';
    PERFORM myria.name_tenant(named);
END $$;
COMMENT ON FUNCTION myria.moved_erasure_epochs IS 'The tenants in which something was erased within five minutes, with their epochs.';
