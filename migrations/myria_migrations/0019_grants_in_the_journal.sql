-- What becomes of grants goes into the journal of access, in the transaction in which it happens: issued, exchanged for
-- tokens, refreshed, revoked, and ended because a code or a token was shown twice.
--
-- Old pods go on working: triggers write for them.

CREATE FUNCTION myria.note_grant() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    named CONSTANT text := coalesce(current_setting('myria.tenant', true), '');
    given myria.oauth_grants;
    what text;
BEGIN
    PERFORM set_config('myria.tenant', NEW.tenant_id, true);
    IF TG_TABLE_NAME = 'oauth_tokens' THEN
        SELECT * INTO given FROM myria.oauth_grants g WHERE g.tenant_id = NEW.tenant_id AND g.grant_id = NEW.grant_id;
        what := CASE WHEN EXISTS (SELECT FROM myria.oauth_tokens o WHERE o.tenant_id = NEW.tenant_id
                    AND o.grant_id = NEW.grant_id AND o.refreshes AND o.used_at IS NOT NULL)
                THEN 'grant.refresh' ELSE 'grant.exchange' END;
    ELSE
        given := NEW;
        what := CASE WHEN TG_OP = 'INSERT' THEN 'grant.issue'
                     WHEN NEW.ended_reason LIKE 'revoked by %' THEN 'grant.revoke' ELSE 'grant.misuse' END;
    END IF;
    INSERT INTO myria.access_log (tenant_id, kind, actor, action, target, outcome, face, details)
    SELECT given.tenant_id, CASE WHEN what = 'grant.misuse' THEN 'refusal' ELSE 'act' END,
           CASE WHEN what = 'grant.issue' THEN 'key:' || given.key_id
                WHEN what = 'grant.revoke' AND given.ended_reason <> 'revoked by the client' THEN substr(given.ended_reason, 12)
                ELSE 'client:' || given.client_id END,
           what, given.grant_id::text, CASE WHEN what = 'grant.misuse' THEN 'credential_invalid' ELSE 'ok' END, given.face,
           jsonb_build_object('key_id', given.key_id, 'client_id', given.client_id,
               'client', (SELECT c.name FROM myria.oauth_clients c WHERE c.client_id = given.client_id),
               'scopes', to_jsonb(given.scopes))
               || CASE WHEN given.ended_reason IS NULL THEN '{}' ELSE jsonb_build_object('reason', given.ended_reason) END;
    PERFORM set_config('myria.tenant', named, true);
    RETURN NULL;
END $$;
COMMENT ON FUNCTION myria.note_grant IS 'Writes what becomes of a grant into the journal of access; never a secret.';

CREATE TRIGGER note_grant AFTER INSERT ON myria.oauth_grants FOR EACH ROW EXECUTE FUNCTION myria.note_grant();
CREATE TRIGGER note_ended_grant AFTER UPDATE OF ended_at ON myria.oauth_grants
    FOR EACH ROW WHEN (OLD.ended_at IS NULL AND NEW.ended_at IS NOT NULL) EXECUTE FUNCTION myria.note_grant();
CREATE TRIGGER note_exchange AFTER INSERT ON myria.oauth_tokens
    FOR EACH ROW WHEN (NEW.refreshes) EXECUTE FUNCTION myria.note_grant();
