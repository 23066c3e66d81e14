-- The log and what is folded from it directly: tenants, scopes, events, withdrawals, and the bytes stored.
--
-- tenant_id leads every key. Row-level security is forced on every table that has it (90_row_security.sql): a transaction
-- sees the rows of the tenant that it names in the setting myria.tenant, and none before it names one.

-- Cursors are signed, so that nobody can ask with a cursor that no answer gave.
CREATE TABLE myria.installation (
    singleton       boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    installation_id uuid NOT NULL DEFAULT gen_random_uuid(),
    cursor_secret   bytea NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE myria.installation IS 'One row: who this database is, and the key that signs cursors.';

INSERT INTO myria.installation (cursor_secret)
VALUES (sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')));

CREATE TABLE myria.tenants (
    tenant_id            text COLLATE "C" PRIMARY KEY,
    created_at           timestamptz NOT NULL DEFAULT now(),
    auto_paused_at       timestamptz,
    auto_paused_reason   text,
    attempted_cutoff     bigint NOT NULL DEFAULT 0,
    consecutive_failures integer NOT NULL DEFAULT 0,
    retry_at             timestamptz,
    llm_planned_at       timestamptz,
    suspended_at         timestamptz,
    suspended_reason     text,
    deleting_at          timestamptz,
    removal_began_at     timestamptz,
    events_per_s         real CHECK (events_per_s > 0),
    bytes_stored         bigint CHECK (bytes_stored > 0),
    concurrent_builds    smallint CHECK (concurrent_builds BETWEEN 0 AND 1),
    model_tokens_per_day bigint CHECK (model_tokens_per_day >= 0),
    redacted             text[] COLLATE "C" CHECK (redacted <@ ARRAY['secret', 'password', 'card', 'email', 'phone']),
    turns_mode           text COLLATE "C" CHECK (turns_mode IN ('on', 'shadow', 'off')),
    refuses_keys         boolean NOT NULL DEFAULT false,
    waits                jsonb NOT NULL DEFAULT '{}'
);
COMMENT ON TABLE myria.tenants IS 'One row per memory; written by builds and rollbacks, never by an append.';
COMMENT ON COLUMN myria.tenants.attempted_cutoff IS 'Greatest cutoff that any build tried since the last rollback: automatic triggers count only events past it.';
COMMENT ON COLUMN myria.tenants.llm_planned_at IS 'Since when there are stored plans: builds of other tenants never look for any.';
COMMENT ON COLUMN myria.tenants.suspended_at IS 'Since when its credentials are refused; its data stays.';
COMMENT ON COLUMN myria.tenants.deleting_at IS 'Since when it is being deleted: nothing is written for it any more.';
COMMENT ON COLUMN myria.tenants.removal_began_at IS 'Since when its rows are being removed: there is no way back, and nothing whole to export.';
COMMENT ON COLUMN myria.tenants.events_per_s IS 'Events per second that it may append to each serving process; NULL: what the settings say.';
COMMENT ON COLUMN myria.tenants.bytes_stored IS 'Bytes of payloads that it may store; NULL: what the settings say.';
COMMENT ON COLUMN myria.tenants.concurrent_builds IS 'Builds of it that may run at once: a tenant never has more than one; 0: none is begun. NULL: one.';
COMMENT ON COLUMN myria.tenants.model_tokens_per_day IS 'Tokens of language models that it may use on one day in UTC; NULL: what the settings say.';
COMMENT ON COLUMN myria.tenants.redacted IS 'Kinds of what is taken out of its payloads before they are stored; NULL: what the settings say.';
COMMENT ON COLUMN myria.tenants.turns_mode IS 'Whether turns are served to it, and compared with its own results; NULL: what the settings say.';
COMMENT ON COLUMN myria.tenants.refuses_keys IS 'Whether it erased something, so that keys of events may be refused.';
COMMENT ON COLUMN myria.tenants.waits IS 'Work of upkeep that a model''s provider keeps from being done: since when, and what the provider said last.';

CREATE TABLE myria.scopes (
    tenant_id    text COLLATE "C" NOT NULL,
    scope_id     bigint GENERATED ALWAYS AS IDENTITY,
    scope_key    bytea NOT NULL,
    participants text[] COLLATE "C" NOT NULL CHECK (cardinality(participants) BETWEEN 1 AND 64),
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, scope_id),
    UNIQUE (tenant_id, scope_key)
);
COMMENT ON TABLE myria.scopes IS 'One row per exact participant set; scope_key is its SHA-256. scope_id is local and never hashed.';

-- Which scopes a participant is in. No foreign key: one statement makes a scope with its members, so it would prove nothing,
-- and removing scopes would look up the members of each in an index that begins with the participant.
CREATE TABLE myria.scope_members (
    tenant_id   text COLLATE "C" NOT NULL,
    participant text COLLATE "C" NOT NULL,
    scope_id    bigint NOT NULL,
    PRIMARY KEY (tenant_id, participant, scope_id)
);

CREATE SEQUENCE myria.event_seq AS bigint CACHE 1;

CREATE TABLE myria.events (
    tenant_id        text COLLATE "C" NOT NULL,
    event_seq        bigint NOT NULL,
    event_id         text COLLATE "C" NOT NULL,
    scope_id         bigint NOT NULL,
    xid              xid8 NOT NULL DEFAULT pg_current_xact_id(),
    occurred_at      timestamptz NOT NULL,
    ingested_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    internal         boolean NOT NULL DEFAULT false,
    channel          text COLLATE "C" NOT NULL,
    type             text COLLATE "C",
    context_id       text COLLATE "C",
    source_event_key text COLLATE "C",
    dedupe_key       bytea,
    payload          jsonb NOT NULL,
    topic_hints      jsonb NOT NULL DEFAULT '[]',
    utc_offset       smallint,
    PRIMARY KEY (tenant_id, event_seq) INCLUDE (internal, scope_id),
    UNIQUE (tenant_id, event_id),
    CHECK ((source_event_key IS NULL) = (dedupe_key IS NULL))
) WITH (
    autovacuum_vacuum_insert_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.02
);
COMMENT ON TABLE myria.events IS 'The append-only log: the only truth. No foreign key to scopes: its row lock would be a hot row per scope.';
COMMENT ON COLUMN myria.events.xid IS 'The appending transaction: cursors hide events their first page could not see.';
COMMENT ON COLUMN myria.events.dedupe_key IS 'SHA-256 of (channel, source_event_key), whose own text would not fit a btree entry.';
COMMENT ON COLUMN myria.events.utc_offset IS 'The offset of the timestamp as it was given, in minutes east of UTC; NULL for UTC.';
CREATE UNIQUE INDEX events_dedupe ON myria.events (tenant_id, dedupe_key) WHERE dedupe_key IS NOT NULL;
CREATE INDEX events_scope_time ON myria.events (tenant_id, scope_id, occurred_at, event_seq);
CREATE INDEX events_scope_xid ON myria.events (tenant_id, scope_id, xid, event_seq);
CREATE INDEX events_internal ON myria.events (tenant_id, scope_id, xid, event_seq) WHERE internal;

CREATE TABLE myria.withdrawn (
    tenant_id     text COLLATE "C" NOT NULL,
    scope_id      bigint NOT NULL,
    event_seq     bigint NOT NULL,
    by_event_seq  bigint NOT NULL,
    reason        text COLLATE "C" NOT NULL
                  CHECK (reason IN ('superseded', 'forgotten', 'expired', 'held', 'refused', 'restored')),
    superseded_by bigint,
    xid           xid8 NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (tenant_id, event_seq, by_event_seq) INCLUDE (reason),
    CHECK (by_event_seq > event_seq)
);
COMMENT ON TABLE myria.withdrawn IS 'What withdrawals say of events, folded from the log in the append transaction: one row per withdrawal and event, only ever added. An event is withdrawn if its newest row says anything but restored.';
COMMENT ON COLUMN myria.withdrawn.superseded_by IS 'The event that replaced it, where there is one.';
COMMENT ON COLUMN myria.withdrawn.xid IS 'The appending transaction, as in events.';
CREATE INDEX withdrawn_by ON myria.withdrawn (tenant_id, by_event_seq) INCLUDE (scope_id, event_seq);
CREATE INDEX withdrawn_successor ON myria.withdrawn (tenant_id, superseded_by) WHERE superseded_by IS NOT NULL;
CREATE INDEX withdrawn_scope ON myria.withdrawn (tenant_id, scope_id, by_event_seq) INCLUDE (event_seq);

CREATE VIEW myria.replaced_events WITH (security_invoker) AS
SELECT w.tenant_id, w.superseded_by, w.event_seq
FROM myria.withdrawn w
WHERE w.superseded_by IS NOT NULL AND w.reason = 'superseded' AND w.by_event_seq = (
    SELECT max(x.by_event_seq) FROM myria.withdrawn x WHERE x.tenant_id = w.tenant_id AND x.event_seq = w.event_seq);
COMMENT ON VIEW myria.replaced_events IS 'What is superseded, each with the event that replaced it: as its newest withdrawal says.';

CREATE TYPE myria.new_event AS (
    event_id text, scope_id bigint, occurred_at timestamptz, channel text, type text, context_id text,
    source_event_key text, dedupe_key bytea, internal boolean, payload jsonb, topic_hints jsonb, utc_offset smallint
);
COMMENT ON TYPE myria.new_event IS 'An event on its way into the log: a row of myria.events without its tenant and number.';

-- A few rows per tenant, so that appends at the same time seldom wait for each other; each is as small as an update in
-- place wants it.
CREATE TABLE myria.stored_sizes (
    tenant_id     text COLLATE "C" NOT NULL,
    part          smallint NOT NULL,
    payload_bytes bigint NOT NULL,
    PRIMARY KEY (tenant_id, part)
) WITH (fillfactor = 50);
COMMENT ON TABLE myria.stored_sizes IS 'The bytes of the payloads of a tenant''s events, as PostgreSQL writes them as text, in parts: their sum counts.';

-- The rows of withdrawn as the log gives them. (OFFSET 0: of a withdrawal that names very many events, what it says is read
-- once, and each event is looked up by its id alone.)
CREATE VIEW myria.withdrawn_of_log WITH (security_invoker) AS
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
  AND w.payload->>'reason' IN ('superseded', 'forgotten', 'expired', 'held', 'refused', 'restored')
  AND e.scope_id = w.scope_id AND e.event_seq < w.event_seq;
