-- Roles for Myria's planes. The schema never creates roles: run this once as an administrator, give each role its own way to
-- log in, and run it again after an upgrade (it is idempotent). Every role may read all tables and call all functions but
-- those that are taken away below; what each may write follows, role by role.

DO $$
DECLARE
    role text;
    name text;
    policy text;
BEGIN
    FOREACH role IN ARRAY ARRAY['myria_server', 'myria_builder', 'myria_operator'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', role);
        END IF;
        EXECUTE format('GRANT USAGE ON SCHEMA myria TO %I', role);
        EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA myria TO %I', role);
        EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA myria TO %I', role);
    END LOOP;
    -- Serving and building name one tenant at a time; only the control plane may name '*'.
    FOREACH role IN ARRAY ARRAY['myria_server', 'myria_builder'] LOOP
        policy := role || '_one_tenant';
        FOR name IN
            SELECT c.relname FROM pg_class c
            WHERE c.relnamespace = 'myria'::regnamespace AND c.relkind = 'r' AND c.relforcerowsecurity
              AND NOT EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND p.polname = policy)
        LOOP
            EXECUTE format('CREATE POLICY %I ON myria.%I AS RESTRICTIVE TO %I
                USING (tenant_id = current_setting(''myria.tenant'', true))', policy, name, role);
        END LOOP;
    END LOOP;
END $$;

-- Makes a policy that is missing or had another rule. What is there takes no lock: readers would wait, or be a deadlock's victim.
CREATE FUNCTION pg_temp.keep_policy(policy name, place name, rule text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = format('myria.%I', place)::regclass AND p.polname = policy
                 AND obj_description(p.oid, 'pg_policy') = rule) THEN
        RETURN;
    END IF;
    EXECUTE format('DROP POLICY IF EXISTS %I ON myria.%I', policy, place);
    EXECUTE format('CREATE POLICY %I ON myria.%I AS RESTRICTIVE %s', policy, place, rule);
    EXECUTE format('COMMENT ON POLICY %I ON myria.%I IS %L', policy, place, rule);
END $$;

-- Serving appends to the log with what is folded from it, asks for builds, and moves the pointer when an administrator says so.
GRANT USAGE ON SEQUENCE myria.event_seq TO myria_server;
GRANT INSERT ON myria.tenants, myria.scopes, myria.scope_members, myria.events, myria.withdrawn, myria.tool_feedback,
    myria.turn_extractions_due, myria.rebuild_requests, myria.pointer_moves, myria.llm_calls, myria.access_log,
    myria.call_log TO myria_server;
GRANT INSERT, UPDATE ON myria.active_snapshots, myria.key_uses, myria.note_evaluations,
    myria.note_evaluations_due, myria.note_relations, myria.note_usage, myria.notes, myria.registrations, myria.sessions,
    myria.turn_sessions, myria.turn_shadows, myria.turns TO myria_server;
GRANT INSERT, UPDATE, DELETE ON myria.note_looks, myria.notes_shown TO myria_server;
GRANT UPDATE (status, activated_at, archived_at) ON myria.snapshots TO myria_server;
GRANT UPDATE (auto_paused_at, auto_paused_reason) ON myria.tenants TO myria_server;
GRANT UPDATE (status, finished_at, error) ON myria.builds TO myria_server;
-- A request that it gives up becomes a build that has ended; it begins none.
GRANT INSERT ON myria.builds TO myria_server;
SELECT pg_temp.keep_policy('myria_server_gives_up', 'builds', $$
    FOR INSERT TO myria_server
    WITH CHECK (status = 'aborted' AND snapshot_id IS NULL)$$);
GRANT UPDATE (build_id) ON myria.rebuild_requests TO myria_server;
SELECT pg_temp.keep_policy('myria_server_gives_up', 'rebuild_requests', $$
    FOR UPDATE TO myria_server
    USING (build_id IS NULL) WITH CHECK (build_id IS NOT NULL)$$);
-- It proves keys, grants, tokens and sessions by functions that want a secret shown, and no plane but the control plane lists them.
REVOKE SELECT ON myria.keys, myria.oauth_grants, myria.oauth_tokens, myria.console_sessions, myria.access_log, myria.call_log
    FROM myria_server, myria_builder;
-- Serving writes down what is to be erased, and withdraws it; it cannot remove a word, nor read the key of a receipt. The
-- control plane removes it where a key with the role erase was shown; from then on its list is closed.
REVOKE SELECT ON myria.erasures FROM myria_server, myria_builder;
GRANT SELECT (tenant_id, erasure_id, state, selected, actor, reason, counts, number, receipt, mac, created_at, finished_at,
    worker, leased_until, failure, proved) ON myria.erasures TO myria_server;
GRANT INSERT ON myria.erasures, myria.erased TO myria_server;
SELECT pg_temp.keep_policy('myria_server_asks', 'erasures', $$
    FOR INSERT TO myria_server
    WITH CHECK (state = 'planned' AND counts = '{}' AND worker IS NULL AND NOT proved)$$);
SELECT pg_temp.keep_policy('myria_server_asks', 'erased', $$
    FOR INSERT TO myria_server
    WITH CHECK (erased_at IS NULL AND NOT EXISTS (
        SELECT FROM myria.erasures x WHERE x.tenant_id = erased.tenant_id AND x.erasure_id = erased.erasure_id AND x.proved))$$);
-- An officer's list takes over what is on one that nobody proved.
GRANT UPDATE (erasure_id) ON myria.erased TO myria_server;
SELECT pg_temp.keep_policy('myria_server_takes_over', 'erased', $$
    FOR UPDATE TO myria_server
    USING (erased_at IS NULL AND NOT EXISTS (
        SELECT FROM myria.erasures x WHERE x.tenant_id = erased.tenant_id AND x.erasure_id = erased.erasure_id AND x.proved))$$);
-- Of refused keys it is told whether some are among them (myria.refused_among): with their secret it could try guesses.
SELECT pg_temp.keep_policy('myria_server_is_told', 'erasure_secrets', $$
    TO myria_server, myria_builder USING (false)$$);
SELECT pg_temp.keep_policy('myria_server_is_told', 'refused_keys', $$
    TO myria_server, myria_builder USING (false)$$);

-- Building writes what it compiled and publishes it; it never writes the log.
GRANT INSERT ON myria.tenants, myria.pointer_moves, myria.llm_calls, myria.unit_plans TO myria_builder;
GRANT INSERT, UPDATE ON myria.topics, myria.build_units, myria.text_vectors, myria.event_vectors, myria.vector_progress
    TO myria_builder;
GRANT INSERT, UPDATE, DELETE ON myria.snapshots, myria.active_snapshots, myria.builds, myria.build_tasks, myria.build_parts,
    myria.scope_roots, myria.nodes, myria.renderings, myria.search_blocks, myria.subject_nodes, myria.subject_roots,
    myria.subject_holders TO myria_builder;
-- Whether a tenant is suspended or deleted is the control plane's to say.
GRANT UPDATE (auto_paused_at, auto_paused_reason, attempted_cutoff, consecutive_failures, retry_at, llm_planned_at, waits)
    ON myria.tenants TO myria_builder;

-- The control plane starts builds, fails dead ones, collects garbage, administers keys, and ends grants.
GRANT USAGE ON SEQUENCE myria.event_seq TO myria_operator;
GRANT INSERT ON myria.scopes, myria.scope_members, myria.withdrawn TO myria_operator;
GRANT INSERT, UPDATE ON myria.tenants, myria.events, myria.active_snapshots, myria.pointer_moves TO myria_operator;
GRANT INSERT, UPDATE, DELETE ON myria.builds, myria.build_tasks, myria.rebuild_requests, myria.snapshots, myria.scope_roots,
    myria.nodes, myria.renderings, myria.search_blocks, myria.subject_nodes, myria.subject_roots, myria.subject_holders,
    myria.text_vectors, myria.event_vectors, myria.vector_progress, myria.llm_calls, myria.keys, myria.access_log,
    myria.call_log, myria.notes, myria.sessions, myria.note_relations, myria.note_evaluations, myria.note_evaluations_due
    TO myria_operator;
GRANT UPDATE (ended_at, ended_reason) ON myria.oauth_grants TO myria_operator;
-- Of queues that serving fills it takes out what is done.
GRANT UPDATE, DELETE ON myria.note_looks, myria.turn_extractions_due TO myria_operator;
GRANT DELETE ON myria.turn_shadows TO myria_operator;
-- It withdraws notes that have expired, links what stays when two say the same, keeps what a model thinks of notes and the
-- facts that it finds in turns, and appends nothing else.
SELECT pg_temp.keep_policy('myria_operator_withdraws', 'events', $$
    FOR INSERT TO myria_operator
    WITH CHECK (internal AND (type = 'myria.withdrawal' AND channel = 'myria' OR type IN ('myria.link', 'myria.evaluation') AND channel = 'notes')
        OR NOT internal AND type = 'myria.note' AND channel = 'notes' AND payload->'note'->>'kind' IN ('fact_l0', 'fact_l1', 'fact_l2')
            AND jsonb_typeof(payload->'note'->'fact') = 'object')$$);
-- It carries out erasures. Of an event that is listed in one it leaves what is no word of anybody; no other event but a
-- withdrawal can it change.
GRANT INSERT ON myria.erasure_secrets, myria.receipt_secrets TO myria_operator;
GRANT INSERT, UPDATE ON myria.erasures, myria.erased, myria.erased_renderings TO myria_operator;
GRANT INSERT, DELETE ON myria.erased_words, myria.refused_keys, myria.registrations, myria.tool_feedback,
    myria.turn_sessions TO myria_operator;
GRANT UPDATE ON myria.build_units TO myria_operator;
GRANT DELETE ON myria.note_usage, myria.notes_shown, myria.turns, myria.unit_plans TO myria_operator;
SELECT pg_temp.keep_policy('myria_operator_lists_anew', 'erased', $$
    FOR DELETE TO myria_operator USING (erased_at IS NULL)$$);
SELECT pg_temp.keep_policy('myria_operator_erases', 'events', $$
    FOR UPDATE TO myria_operator
    USING (type = 'myria.withdrawal' AND internal
           OR EXISTS (SELECT FROM myria.erased x
                      WHERE x.tenant_id = events.tenant_id AND x.event_seq = events.event_seq AND x.erased_at IS NULL))
    WITH CHECK (type = 'myria.withdrawal' AND internal
                OR payload = '{}' AND topic_hints = '[]' AND source_event_key IS NULL AND dedupe_key IS NULL
                   AND type IS NULL AND context_id IS NULL AND channel = 'erased')$$);
-- Afterwards it lets PostgreSQL remove the dead rows; before version 17 that is for the owner alone.
DO $$
BEGIN
    IF current_setting('server_version_num')::integer >= 170000 THEN
        EXECUTE (SELECT format('GRANT MAINTAIN ON %s TO myria_operator', string_agg(format('myria.%I', place), ', '))
                 FROM unnest(myria.erased_places()) AS place);
    END IF;
END $$;

-- Secrets. With the key of ids that imports make of content, a guess of it could be proved; with the key of their chain
-- receipts could be forged.
REVOKE SELECT ON myria.import_secrets FROM myria_server, myria_builder, myria_operator;
REVOKE SELECT ON myria.receipt_secrets FROM myria_server, myria_builder;

-- Functions. Whoever appends counts what is added, and nobody else; what a model finds in turns the control plane counts;
-- of the log it removes only what tenants that are being deleted owned, through functions that check that.
REVOKE EXECUTE ON FUNCTION myria.keyed_event_ids, myria.prove_erasure, myria.refused_among,
    myria.officer, myria.show_receipt_key, myria.count_added FROM myria_builder;
REVOKE EXECUTE ON FUNCTION myria.tally_found_facts, myria.forget_digests, myria.sample_anew,
    myria.remove_of_tenant, myria.forget_tenant, myria.remains_of_tenant
    FROM myria_server, myria_builder;
REVOKE EXECUTE ON FUNCTION myria.count_stored, myria.administrator, myria.begin_console_session
    FROM myria_server, myria_builder, myria_operator;

DROP FUNCTION pg_temp.keep_policy;
