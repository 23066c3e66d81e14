-- Erasures: events that are gone for good, the receipts of it, and the keys under which their tombstones are kept.

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
    worker       text COLLATE "C",
    leased_until timestamptz,
    failure      jsonb,
    key_shown_at timestamptz,
    proved       boolean NOT NULL DEFAULT false,
    PRIMARY KEY (tenant_id, erasure_id),
    UNIQUE (tenant_id, number),
    CHECK ((state = 'done') = (receipt IS NOT NULL AND number IS NOT NULL AND mac IS NOT NULL AND finished_at IS NOT NULL))
);
COMMENT ON TABLE myria.erasures IS 'Requests to erase, and their receipts, which form a chain per tenant.';
COMMENT ON COLUMN myria.erasures.selected IS 'By what the events were chosen, and how many; never a word of theirs.';
COMMENT ON COLUMN myria.erasures.receipt_key IS 'Under which the digests of erased words were made; NULL once the receipt was handed over.';
COMMENT ON COLUMN myria.erasures.receipt IS 'Canonical JSON, of which mac is the HMAC together with the mac before.';
COMMENT ON COLUMN myria.erasures.worker IS 'Who works on it; its lease ends at leased_until unless it is renewed.';
COMMENT ON COLUMN myria.erasures.failure IS 'Code and message of the error that ended the last attempt; NULL while none did.';
COMMENT ON COLUMN myria.erasures.key_shown_at IS 'When receipt_key was first shown by a tool; minutes later it is forgotten.';
COMMENT ON COLUMN myria.erasures.proved IS 'Whether the control plane or an owner began it, or a key with the role erase was shown for it.';
CREATE INDEX erasures_open ON myria.erasures (tenant_id, created_at) WHERE state <> 'done';
CREATE INDEX erasures_newest ON myria.erasures (tenant_id, created_at);
CREATE INDEX erasures_shown ON myria.erasures (key_shown_at) WHERE receipt_key IS NOT NULL AND key_shown_at IS NOT NULL;

CREATE TABLE myria.erased (
    tenant_id  text COLLATE "C" NOT NULL,
    event_seq  bigint NOT NULL,
    scope_id   bigint NOT NULL,
    erasure_id text COLLATE "C" NOT NULL,
    erased_at  timestamptz,
    PRIMARY KEY (tenant_id, event_seq)
);
COMMENT ON TABLE myria.erased IS 'The events of each erasure: of those with erased_at only id, number, scope and time are left in the log.';
CREATE INDEX erased_of ON myria.erased (tenant_id, erasure_id, event_seq);
CREATE INDEX erased_scope ON myria.erased (tenant_id, scope_id);

CREATE TABLE myria.erased_renderings (
    tenant_id    text COLLATE "C" NOT NULL,
    rendering_id bytea NOT NULL,
    erasure_id   text COLLATE "C" NOT NULL,
    erased_at    timestamptz,
    PRIMARY KEY (tenant_id, rendering_id)
);
COMMENT ON TABLE myria.erased_renderings IS 'Renderings whose words were erased: they keep their ids, which are hashes of words that are gone.';
CREATE INDEX erased_renderings_of ON myria.erased_renderings (tenant_id, erasure_id, rendering_id);

CREATE TABLE myria.erased_words (
    tenant_id  text COLLATE "C" NOT NULL,
    erasure_id text COLLATE "C" NOT NULL,
    digest     bytea NOT NULL,
    sieve      integer,
    PRIMARY KEY (tenant_id, erasure_id, digest)
);
COMMENT ON TABLE myria.erased_words IS 'HMACs of erased words and phrases under the key of their receipt, which is not kept here.';
COMMENT ON COLUMN myria.erased_words.sieve IS '24 bits of keyed hashes of the phrase''s words: a text is sieved before its phrases are digested. NULL in receipts from before.';

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

CREATE TABLE myria.receipt_secrets (
    tenant_id text COLLATE "C" PRIMARY KEY,
    secret    bytea NOT NULL CHECK (octet_length(secret) = 32)
);
COMMENT ON TABLE myria.receipt_secrets IS 'The key of a tenant''s chain of receipts. Serving and building cannot read it.';

CREATE TABLE myria.import_secrets (
    tenant_id text COLLATE "C" PRIMARY KEY,
    secret    bytea NOT NULL CHECK (octet_length(secret) = 32)
);
COMMENT ON TABLE myria.import_secrets IS 'The key of ids that are made of content. No plane can read it.';

CREATE TABLE myria.erasure_epochs (
    tenant_id text COLLATE "C" PRIMARY KEY,
    epoch     bigint NOT NULL DEFAULT 1,
    moved_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE myria.erasure_epochs IS 'Moves with every erasure in a tenant. Serving processes read what moved twice a second, and forget what they keep of the tenant.';
CREATE INDEX erasure_epochs_moved ON myria.erasure_epochs (moved_at);
