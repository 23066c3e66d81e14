-- Ids that an import makes of the content of an event: under a key of the tenant.
--
-- Old pods go on working: what they import gets ids under no key, which are found again by later imports. Ids from before
-- stay until their events are erased. The key is in backups: a restored database takes no file twice.

CREATE TABLE myria.import_secrets (
    tenant_id text COLLATE "C" PRIMARY KEY,
    secret    bytea NOT NULL CHECK (octet_length(secret) = 32)
);
COMMENT ON TABLE myria.import_secrets IS 'The key of ids that are made of content. No plane can read it.';
ALTER TABLE myria.import_secrets ENABLE ROW LEVEL SECURITY;
ALTER TABLE myria.import_secrets FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_named ON myria.import_secrets
    USING (tenant_id = current_setting('myria.tenant', true) OR current_setting('myria.tenant', true) = '*');
CREATE TRIGGER refuse_while_deleted BEFORE INSERT ON myria.import_secrets
    FOR EACH STATEMENT EXECUTE FUNCTION myria.refuse_while_deleted();
SELECT set_config('myria.tenant', '*', true);
INSERT INTO myria.import_secrets (tenant_id, secret)
SELECT t.tenant_id, sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8'))
FROM myria.tenants t WHERE t.deleting_at IS NULL;

-- The time stays; of the 80 bits behind it 56 are the key's and the content's, and 24 tell that they are.
CREATE FUNCTION myria.keyed_event_id(secret bytea, made text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT head || left(encode(sha256(secret || convert_to(head, 'UTF8')), 'hex'), 6)
    FROM (SELECT left(made, 16) || left(encode(sha256(secret || convert_to(made, 'UTF8')), 'hex'), 14)) AS k (head)
$$;
CREATE FUNCTION myria.is_keyed_event_id(secret bytea, id text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT right(id, 6) = left(encode(sha256(secret || convert_to(left(id, 30), 'UTF8')), 'hex'), 6)
$$;
-- An id of the form that imports made of content before: it begins with the event's own time.
CREATE FUNCTION myria.may_be_made_of_content(id text, occurred_at timestamptz) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT substr(id, 5, 12) = right(lpad(to_hex(greatest(0, floor(extract(epoch FROM occurred_at) * 1000))::bigint), 12, '0'), 12)
$$;

CREATE FUNCTION myria.keyed_event_ids(tenant text, made text[]) RETURNS text[]
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
    RETURN ARRAY(SELECT myria.keyed_event_id(own_secret, m.id) FROM unnest(made) WITH ORDINALITY AS m (id, place) ORDER BY m.place);
END $$;
COMMENT ON FUNCTION myria.keyed_event_ids IS 'The ids under which events are imported whose content alone identifies them.';
REVOKE EXECUTE ON FUNCTION myria.keyed_event_ids FROM PUBLIC;

-- Tombstones whose ids were hashes of content under no key get keyed ones, wherever the log and its projections name them.
CREATE FUNCTION myria.key_erased_ids(tenant text, numbers bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    own_secret bytea;
    changed    record;
BEGIN
    PERFORM myria.keyed_event_ids(tenant, '{}');
    SELECT s.secret INTO own_secret FROM myria.import_secrets s WHERE s.tenant_id = tenant;
    FOR changed IN
        SELECT e.event_seq, e.event_id AS made, myria.keyed_event_id(own_secret, e.event_id) AS keyed
        FROM unnest(numbers) AS n
        JOIN myria.erased x ON x.tenant_id = tenant AND x.event_seq = n AND x.erased_at IS NULL
        JOIN myria.events e ON e.tenant_id = tenant AND e.event_seq = n
        WHERE e.dedupe_key IS NULL AND coalesce(e.type, '') NOT LIKE 'myria.%'
          AND myria.may_be_made_of_content(e.event_id, e.occurred_at) AND NOT myria.is_keyed_event_id(own_secret, e.event_id)
    LOOP
        UPDATE myria.events e SET event_id = changed.keyed WHERE e.tenant_id = tenant AND e.event_seq = changed.event_seq;
        UPDATE myria.events w
        SET payload = replace(w.payload::text, changed.made, changed.keyed)::jsonb, source_event_key = NULL, dedupe_key = NULL
        FROM myria.withdrawn d
        WHERE d.tenant_id = tenant AND (d.event_seq = changed.event_seq OR d.superseded_by = changed.event_seq)
          AND w.tenant_id = tenant AND w.event_seq = d.by_event_seq AND w.type = 'myria.withdrawal';
    END LOOP;
END $$;
COMMENT ON FUNCTION myria.key_erased_ids IS 'Gives some events of an erasure that is under way ids under the tenant''s key, where theirs are hashes of their content.';
REVOKE EXECUTE ON FUNCTION myria.key_erased_ids FROM PUBLIC;

CREATE FUNCTION myria.key_erased_anchors(tenant text, chosen bytea[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    own_secret bytea;
BEGIN
    SELECT s.secret INTO own_secret FROM myria.import_secrets s WHERE s.tenant_id = tenant;
    UPDATE myria.renderings r SET anchor_event_id = e.event_id
    FROM myria.events e
    WHERE r.tenant_id = tenant AND r.rendering_id = ANY (chosen)
      AND e.tenant_id = tenant AND e.event_seq = r.anchor_seq AND e.event_id <> r.anchor_event_id;
    UPDATE myria.topics t SET anchor_event_id = e.event_id
    FROM myria.renderings r, myria.events e
    WHERE r.tenant_id = tenant AND r.rendering_id = ANY (chosen)
      AND t.tenant_id = tenant AND t.topic_id = r.topic_id
      AND e.tenant_id = tenant AND e.event_seq = t.anchor_seq AND e.event_id <> t.anchor_event_id;
    UPDATE myria.renderings r SET key_event_id = myria.keyed_event_id(own_secret, r.key_event_id)
    WHERE r.tenant_id = tenant AND r.rendering_id = ANY (chosen)
      AND NOT EXISTS (SELECT FROM myria.events e WHERE e.tenant_id = tenant AND e.event_id = r.key_event_id);
END $$;
COMMENT ON FUNCTION myria.key_erased_anchors IS 'Lets renderings that are being erased, and their topics, name events by the ids that these have by now.';
REVOKE EXECUTE ON FUNCTION myria.key_erased_anchors FROM PUBLIC;

CREATE FUNCTION myria.events_by_keyed_id(tenant text, ids text[]) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    own_secret bytea;
BEGIN
    SELECT s.secret INTO own_secret FROM myria.import_secrets s WHERE s.tenant_id = tenant;
    IF own_secret IS NOT NULL THEN
        RETURN QUERY SELECT e.event_seq FROM myria.events e
            WHERE e.tenant_id = tenant AND e.dedupe_key IS NULL AND myria.may_be_made_of_content(e.event_id, e.occurred_at)
              AND myria.keyed_event_id(own_secret, e.event_id) = ANY (ids);
    END IF;
END $$;
COMMENT ON FUNCTION myria.events_by_keyed_id IS 'The events whose ids, made of content, are these under the tenant''s key: a look at the whole log.';
REVOKE EXECUTE ON FUNCTION myria.events_by_keyed_id FROM PUBLIC;

-- The same rows as before: of a withdrawal that names very many events, what it says is read once, not once per event.
CREATE OR REPLACE VIEW myria.withdrawals_of_log WITH (security_invoker) AS
SELECT w.tenant_id, w.scope_id, e.event_seq, w.event_seq AS by_event_seq, said.reason, said.superseded_by
FROM myria.events w
CROSS JOIN LATERAL (
    SELECT w.payload->>'reason' AS reason,
           (SELECT s.event_seq FROM myria.events s
            WHERE s.tenant_id = w.tenant_id AND s.event_id = w.payload->>'superseded_by' AND s.event_seq < w.event_seq
            UNION ALL
            SELECT s.event_seq FROM myria.events s
            WHERE s.tenant_id = w.tenant_id AND s.dedupe_key = decode(w.payload->>'superseded_by_key', 'hex')
              AND s.event_seq < w.event_seq
            LIMIT 1) AS superseded_by
    OFFSET 0
) said
CROSS JOIN LATERAL (
    SELECT DISTINCT named.event_id
    FROM jsonb_array_elements_text(
        CASE WHEN jsonb_typeof(w.payload->'events') = 'array' THEN w.payload->'events' ELSE '[]' END) AS named (event_id)
) named
CROSS JOIN LATERAL (
    SELECT x.event_seq, x.scope_id FROM myria.events x
    WHERE x.tenant_id = w.tenant_id AND x.event_id = named.event_id OFFSET 0
) e
WHERE w.type = 'myria.withdrawal' AND w.channel = 'myria' AND w.internal
  AND w.payload->>'reason' IN ('superseded', 'forgotten', 'expired', 'restored')
  AND e.scope_id = w.scope_id AND e.event_seq < w.event_seq;
