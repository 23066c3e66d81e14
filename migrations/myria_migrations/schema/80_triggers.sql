-- Which statements the trigger functions of 70 to 77 follow.

-- Whoever adds rows to a tenant that is being deleted is refused, in every table of tenants but those that hold no data of
-- its own, whose rows go with others, or that record what was done to it.
DO $$
DECLARE
    name text;
BEGIN
    FOR name IN
        SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id'
        WHERE c.relnamespace = 'myria'::regnamespace AND c.relkind = 'r' AND c.relname NOT IN (
            'tenants', 'scope_members', 'stored_sizes', 'model_uses', 'key_uses', 'oauth_grants', 'oauth_tokens',
            'console_sessions', 'access_log', 'call_log')
    LOOP
        EXECUTE format('CREATE TRIGGER refuse_while_deleted BEFORE INSERT ON myria.%I
            FOR EACH STATEMENT EXECUTE FUNCTION myria.refuse_while_deleted()', name);
    END LOOP;
END $$;

CREATE TRIGGER note_revision BEFORE INSERT OR UPDATE ON myria.builds
    FOR EACH ROW EXECUTE FUNCTION myria.note_revision();
CREATE TRIGGER tally_build AFTER UPDATE ON myria.builds
    FOR EACH ROW WHEN (OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL) EXECUTE FUNCTION myria.tally_build();

CREATE TRIGGER note_revision BEFORE INSERT OR UPDATE ON myria.rebuild_requests
    FOR EACH ROW EXECUTE FUNCTION myria.note_revision();

CREATE TRIGGER tally_move AFTER INSERT ON myria.pointer_moves
    FOR EACH ROW EXECUTE FUNCTION myria.tally_move();
CREATE TRIGGER forget_attempts AFTER INSERT ON myria.pointer_moves
    FOR EACH ROW WHEN (NEW.kind = 'rollback') EXECUTE FUNCTION myria.forget_attempts();

CREATE TRIGGER tally_llm_call AFTER INSERT ON myria.llm_calls
    FOR EACH ROW EXECUTE FUNCTION myria.tally_llm_call();
CREATE TRIGGER count_model_use AFTER INSERT ON myria.llm_calls
    FOR EACH ROW WHEN (NEW.input_tokens + NEW.output_tokens > 0) EXECUTE FUNCTION myria.count_model_use();

CREATE TRIGGER keys_changed AFTER INSERT OR UPDATE OR DELETE ON myria.keys
    FOR EACH STATEMENT EXECUTE FUNCTION myria.move_access_epoch();

CREATE TRIGGER tenants_changed AFTER UPDATE OF suspended_at OR DELETE ON myria.tenants
    FOR EACH STATEMENT EXECUTE FUNCTION myria.move_access_epoch();

CREATE TRIGGER oauth_grants_ended AFTER UPDATE OF ended_at ON myria.oauth_grants
    FOR EACH STATEMENT EXECUTE FUNCTION myria.move_access_epoch();
CREATE TRIGGER console_sessions_ended AFTER UPDATE OF ended_at ON myria.console_sessions
    FOR EACH STATEMENT EXECUTE FUNCTION myria.move_access_epoch();
CREATE TRIGGER note_grant AFTER INSERT ON myria.oauth_grants FOR EACH ROW EXECUTE FUNCTION myria.note_grant();
-- An administrator or operator who ends a grant writes why and from where.
CREATE TRIGGER note_ended_grant AFTER UPDATE OF ended_at ON myria.oauth_grants
    FOR EACH ROW WHEN (OLD.ended_at IS NULL AND (NEW.ended_reason = 'revoked by the client' OR NEW.ended_reason NOT LIKE 'revoked by %'))
    EXECUTE FUNCTION myria.note_grant();

CREATE TRIGGER count_rewritten AFTER UPDATE OF payload ON myria.events
    FOR EACH ROW EXECUTE FUNCTION myria.count_rewritten();
CREATE TRIGGER add_appended AFTER INSERT ON myria.events
    FOR EACH ROW WHEN (current_setting('myria.tally', true) IS DISTINCT FROM 'own')
    EXECUTE FUNCTION myria.count_appended();
CREATE TRIGGER count_appended AFTER INSERT ON myria.events
    FOR EACH STATEMENT WHEN (current_setting('myria.tally', true) IS DISTINCT FROM 'own')
    EXECUTE FUNCTION myria.count_appended();

CREATE TRIGGER note_exchange AFTER INSERT ON myria.oauth_tokens
    FOR EACH ROW WHEN (NEW.refreshes) EXECUTE FUNCTION myria.note_grant();

CREATE TRIGGER tally_feedback AFTER INSERT ON myria.tool_feedback REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION myria.tally_feedback();

-- Nobody decided where a note came to the review just now, or left it since something else became of it.
CREATE TRIGGER tally_decision AFTER UPDATE OF review ON myria.notes
    FOR EACH ROW WHEN (OLD.review <> NEW.review) EXECUTE FUNCTION myria.tally_decision();

CREATE TRIGGER move_erasure_epoch AFTER UPDATE ON myria.erased REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION myria.move_erasure_epoch();

CREATE TRIGGER move_erasure_epoch AFTER UPDATE ON myria.erased_renderings REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION myria.move_erasure_epoch();

CREATE TRIGGER tally_erasure AFTER UPDATE ON myria.erasures
    FOR EACH ROW WHEN (OLD.state <> 'done' AND NEW.state = 'done') EXECUTE FUNCTION myria.tally_erasure();
CREATE TRIGGER tally_erasure_begun AFTER INSERT ON myria.erasures
    FOR EACH ROW EXECUTE FUNCTION myria.tally_erasure();

CREATE TRIGGER look_at_notes AFTER UPDATE ON myria.notes REFERENCING NEW TABLE AS written
    FOR EACH STATEMENT EXECUTE FUNCTION myria.look_at_notes();
CREATE TRIGGER look_at_new_notes AFTER INSERT ON myria.notes REFERENCING NEW TABLE AS written
    FOR EACH STATEMENT EXECUTE FUNCTION myria.look_at_notes();

CREATE TRIGGER refuse_keys_from_now AFTER INSERT ON myria.erasure_secrets
    FOR EACH ROW EXECUTE FUNCTION myria.refuse_keys_from_now();
