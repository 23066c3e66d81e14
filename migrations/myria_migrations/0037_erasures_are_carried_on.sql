-- Erasures that are asked for through a tool: the control plane carries them on, whoever works on one holds its lease,
-- and serving processes learn whose cached words are gone. Totals of erasures become metrics.
--
-- Old pods go on working: an old `myria erase` takes no lease, so do not run one beside a new control plane.

ALTER TABLE myria.erasures
    ADD COLUMN worker       text COLLATE "C",
    ADD COLUMN leased_until timestamptz,
    ADD COLUMN failure      jsonb,
    ADD COLUMN key_shown_at timestamptz;
COMMENT ON COLUMN myria.erasures.worker IS 'Who works on it; its lease ends at leased_until unless it is renewed.';
COMMENT ON COLUMN myria.erasures.failure IS 'Code and message of the error that ended the last attempt; NULL while none did.';
COMMENT ON COLUMN myria.erasures.key_shown_at IS 'When receipt_key was first shown by a tool; minutes later it is forgotten.';
CREATE INDEX erasures_open ON myria.erasures (tenant_id, created_at) WHERE state <> 'done';
CREATE INDEX erasures_newest ON myria.erasures (tenant_id, created_at);
CREATE INDEX erasures_shown ON myria.erasures (key_shown_at) WHERE receipt_key IS NOT NULL AND key_shown_at IS NOT NULL;

-- A tool shows the key of a receipt for five minutes, so that a lost answer can be asked for again; then it is gone.
CREATE FUNCTION myria.show_receipt_key(tenant text, erasure text, asker text) RETURNS bytea
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

CREATE TABLE myria.erasure_epochs (
    tenant_id text COLLATE "C" PRIMARY KEY,
    epoch     bigint NOT NULL DEFAULT 1,
    moved_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX erasure_epochs_moved ON myria.erasure_epochs (moved_at);
COMMENT ON TABLE myria.erasure_epochs IS 'Moves with every erasure in a tenant. Serving processes read what moved twice a second, and forget what they keep of the tenant.';
ALTER TABLE myria.erasure_epochs ENABLE ROW LEVEL SECURITY;
ALTER TABLE myria.erasure_epochs FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_named ON myria.erasure_epochs
    USING (tenant_id = current_setting('myria.tenant', true) OR current_setting('myria.tenant', true) = '*');
CREATE TRIGGER refuse_while_deleted BEFORE INSERT ON myria.erasure_epochs
    FOR EACH STATEMENT EXECUTE FUNCTION myria.refuse_while_deleted();

CREATE FUNCTION myria.move_erasure_epoch() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO myria.erasure_epochs (tenant_id) SELECT DISTINCT c.tenant_id FROM changed c
    ON CONFLICT (tenant_id) DO UPDATE SET epoch = erasure_epochs.epoch + 1, moved_at = clock_timestamp();
    RETURN NULL;
END $$;
CREATE TRIGGER move_erasure_epoch AFTER UPDATE ON myria.erased REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION myria.move_erasure_epoch();
CREATE TRIGGER move_erasure_epoch AFTER UPDATE ON myria.erased_renderings REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION myria.move_erasure_epoch();

-- Of all tenants: it tells names and numbers alone. A transaction ends within two minutes, so five cover late commits.
CREATE FUNCTION myria.moved_erasure_epochs() RETURNS TABLE (tenant_id text, epoch bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    named text := coalesce(current_setting('myria.tenant', true), '');
BEGIN
    PERFORM set_config('myria.tenant', '*', true);
    RETURN QUERY
        SELECT p.tenant_id, p.epoch FROM myria.erasure_epochs p WHERE p.moved_at > clock_timestamp() - interval '5 minutes';
    PERFORM set_config('myria.tenant', named, true);
END $$;
COMMENT ON FUNCTION myria.moved_erasure_epochs IS 'The tenants in which something was erased within five minutes, with their epochs.';

CREATE FUNCTION myria.tally_erasure() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO myria.tallies (family, labels, amount)
    SELECT 'erasures', ARRAY['done'], 1
    UNION ALL
    SELECT 'erased_rows', ARRAY[left(c.key, 100)], c.value::bigint FROM jsonb_each_text(NEW.counts) c WHERE c.value::bigint > 0;
    PERFORM myria.tally_duration('erasure_duration', 'done', NEW.finished_at - NEW.created_at);
    RETURN NULL;
END $$;
CREATE TRIGGER tally_erasure AFTER UPDATE ON myria.erasures
    FOR EACH ROW WHEN (OLD.state <> 'done' AND NEW.state = 'done') EXECUTE FUNCTION myria.tally_erasure();
CREATE FUNCTION myria.tally_erasure_begun() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO myria.tallies (family, labels, amount) VALUES ('erasures', ARRAY['begun'], 1);
    RETURN NULL;
END $$;
CREATE TRIGGER tally_erasure_begun AFTER INSERT ON myria.erasures
    FOR EACH ROW EXECUTE FUNCTION myria.tally_erasure_begun();
