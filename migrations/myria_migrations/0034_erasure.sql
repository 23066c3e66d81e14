-- Erasure: events that are gone for good, what was done about them, and receipts of it.
--
-- Old pods go on working. They do not know keyed tombstones, so until the last of them is gone an erased event could be
-- appended once more through one of them; and they would bring an erased event back, empty, if somebody restored it.

CREATE TABLE myria.erasures (
    tenant_id    text COLLATE "C" NOT NULL,
    erasure_id   text COLLATE "C" NOT NULL,
    state        text COLLATE "C" NOT NULL DEFAULT 'planned' CHECK (state IN ('planned', 'withdrawn', 'erasing', 'done')),
    selected     jsonb NOT NULL,
    actor        text NOT NULL,
    reason       text NOT NULL,
    counts       jsonb NOT NULL DEFAULT '{}',
    receipt_key  bytea CHECK (octet_length(receipt_key) = 32),
    number       integer,
    receipt      text,
    mac          bytea,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at  timestamptz,
    PRIMARY KEY (tenant_id, erasure_id),
    UNIQUE (tenant_id, number),
    CHECK ((state = 'done') = (receipt IS NOT NULL AND number IS NOT NULL AND mac IS NOT NULL AND finished_at IS NOT NULL))
);
COMMENT ON TABLE myria.erasures IS 'Requests to erase, and their receipts, which form a chain per tenant.';
COMMENT ON COLUMN myria.erasures.selected IS 'By what the events were chosen, and how many; never a word of theirs.';
COMMENT ON COLUMN myria.erasures.receipt_key IS 'Under which the digests of erased words were made; NULL once the receipt was handed over.';
COMMENT ON COLUMN myria.erasures.receipt IS 'Canonical JSON, of which mac is the HMAC together with the mac before.';

CREATE TABLE myria.erased (
    tenant_id  text COLLATE "C" NOT NULL,
    event_seq  bigint NOT NULL,
    scope_id   bigint NOT NULL,
    erasure_id text COLLATE "C" NOT NULL,
    erased_at  timestamptz,
    PRIMARY KEY (tenant_id, event_seq)
);
CREATE INDEX erased_of ON myria.erased (tenant_id, erasure_id, event_seq);
CREATE INDEX erased_scope ON myria.erased (tenant_id, scope_id);
COMMENT ON TABLE myria.erased IS 'The events of each erasure: of those with erased_at only id, number, scope and time are left in the log.';

CREATE TABLE myria.erased_renderings (
    tenant_id    text COLLATE "C" NOT NULL,
    rendering_id bytea NOT NULL,
    erasure_id   text COLLATE "C" NOT NULL,
    erased_at    timestamptz,
    PRIMARY KEY (tenant_id, rendering_id)
);
CREATE INDEX erased_renderings_of ON myria.erased_renderings (tenant_id, erasure_id, rendering_id);
COMMENT ON TABLE myria.erased_renderings IS 'Renderings whose words were erased: they keep their ids, which are hashes of words that are gone.';

CREATE TABLE myria.erased_words (
    tenant_id  text COLLATE "C" NOT NULL,
    erasure_id text COLLATE "C" NOT NULL,
    digest     bytea NOT NULL,
    PRIMARY KEY (tenant_id, erasure_id, digest)
);
COMMENT ON TABLE myria.erased_words IS 'HMACs of erased words and phrases under the key of their receipt, which is not kept here.';

CREATE TABLE myria.erasure_secrets (
    tenant_id text COLLATE "C" PRIMARY KEY,
    secret    bytea NOT NULL CHECK (octet_length(secret) = 32)
);
COMMENT ON TABLE myria.erasure_secrets IS 'One per tenant that erased something: the key of its chain of receipts and of its refused keys.';

CREATE TABLE myria.refused_keys (
    tenant_id text COLLATE "C" NOT NULL,
    key       bytea NOT NULL,
    PRIMARY KEY (tenant_id, key)
);
COMMENT ON TABLE myria.refused_keys IS 'Keyed tombstones of erased events: the SHA-256 of the tenant''s secret and an event''s dedupe key. Such an event is not appended again.';

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['erasures', 'erased', 'erased_renderings', 'erased_words', 'erasure_secrets', 'refused_keys'] LOOP
        EXECUTE format('ALTER TABLE myria.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE myria.%I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format($p$CREATE POLICY tenant_named ON myria.%I
            USING (tenant_id = current_setting('myria.tenant', true) OR current_setting('myria.tenant', true) = '*')$p$, name);
        EXECUTE format('CREATE TRIGGER refuse_while_deleted BEFORE INSERT ON myria.%I
            FOR EACH STATEMENT EXECUTE FUNCTION myria.refuse_while_deleted()', name);
    END LOOP;
END $$;
