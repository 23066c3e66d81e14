-- What an erasure left beside the words: digests in events that stay, and the samples that PostgreSQL takes of columns.
--
-- Old pods go on working. An old `myria erase` leaves both as before: do not run one.

-- The mark of a turn names the notes of its facts, whose ids follow from what the facts are about; what ends a session
-- without a name had a key made of its summary, before this release.
CREATE FUNCTION myria.forget_digests(tenant text, numbers bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    gone     text[];
    contexts text[];
    scopes   bigint[];
BEGIN
    SELECT array_agg(DISTINCT e.payload->'note'->>'id'), array_agg(DISTINCT e.context_id), array_agg(DISTINCT e.scope_id)
    INTO gone, contexts, scopes
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
    UPDATE myria.events s SET source_event_key = NULL, dedupe_key = NULL
    WHERE s.tenant_id = tenant AND s.scope_id = ANY (scopes) AND s.internal AND s.type = 'myria.session'
      AND s.context_id IS NULL AND s.source_event_key IS NOT NULL;
END $$;
COMMENT ON FUNCTION myria.forget_digests IS 'Takes digests of some events that are listed in an erasure, and have words still, out of events that stay.';
REVOKE EXECUTE ON FUNCTION myria.forget_digests FROM PUBLIC;

-- ANALYZE keeps common values and bounds of columns, whole payloads among them. Only the owner of a table may run it. Of an
-- empty table it leaves what it had; from PostgreSQL 18 on that can be taken away.
CREATE FUNCTION myria.sample_anew(place text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    named    text := coalesce(current_setting('myria.tenant', true), '');
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
    PERFORM set_config('myria.tenant', '*', true);
    EXECUTE format('SELECT NOT EXISTS (SELECT FROM myria.%I)', place) INTO is_empty;
    PERFORM set_config('myria.tenant', named, true);
    IF is_empty THEN
        FOR attribute IN SELECT a.attname FROM pg_attribute a
                         WHERE a.attrelid = format('myria.%I', place)::regclass AND a.attnum > 0 AND NOT a.attisdropped LOOP
            PERFORM pg_clear_attribute_stats('myria', place, attribute, false);
        END LOOP;
    END IF;
END $$;
COMMENT ON FUNCTION myria.sample_anew IS 'Lets PostgreSQL take the statistics of a table anew, so that they hold nothing of rows that are gone.';

CREATE FUNCTION myria.erased_places() RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
    SELECT ARRAY['events', 'renderings', 'search_blocks', 'notes', 'note_looks', 'note_usage', 'note_links',
        'note_evaluations', 'note_evaluations_due', 'memories', 'registrations', 'turns', 'turn_sessions',
        'turn_extractions_due', 'turn_shadows', 'tool_feedback', 'sessions', 'unit_plans', 'llm_calls', 'builds',
        'build_tasks', 'build_units', 'snapshots', 'rebuild_requests', 'pointer_moves', 'tenants', 'access_log',
        'call_log', 'erasures', 'erased_words']
$$;
COMMENT ON FUNCTION myria.erased_places IS 'The tables of which an erasure changes or removes rows.';
REVOKE EXECUTE ON FUNCTION myria.sample_anew FROM PUBLIC;
