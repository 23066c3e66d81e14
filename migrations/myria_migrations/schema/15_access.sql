-- Who may ask: keys, the grants and tokens of the authorization server, sessions of the console, and the journals of acts and of calls.

CREATE TABLE myria.keys (
    tenant_id        text COLLATE "C" NOT NULL REFERENCES myria.tenants (tenant_id) ON DELETE CASCADE,
    key_id           text COLLATE "C" NOT NULL CHECK (key_id ~ '^[a-z0-9]{6,32}$'),
    name             text NOT NULL,
    description      text,
    digest           bytea NOT NULL CHECK (octet_length(digest) = 32),
    roles            text[] COLLATE "C" NOT NULL CHECK (roles <@ ARRAY['append', 'read', 'admin', 'erase']),
    faces            text[] COLLATE "C" NOT NULL,
    own_participants text[] COLLATE "C" NOT NULL,
    may_ask          text[] COLLATE "C" NOT NULL,
    channels         text[] COLLATE "C",
    requests_per_s   real CHECK (requests_per_s > 0),
    concurrency      integer CHECK (concurrency > 0),
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by       text NOT NULL,
    expires_at       timestamptz,
    revoked_at       timestamptz,
    replaces_key_id  text COLLATE "C",
    text_format      text COLLATE "C" CHECK (text_format IN ('text', 'json')),
    PRIMARY KEY (tenant_id, key_id)
);
COMMENT ON TABLE myria.keys IS 'Credentials: what each may do. Of the secret only its SHA-256 is here.';
COMMENT ON COLUMN myria.keys.channels IS 'Patterns of the channels it may append to; NULL: any.';
COMMENT ON COLUMN myria.keys.may_ask IS 'Patterns of the participants it may name beside its own.';
COMMENT ON COLUMN myria.keys.text_format IS 'Text of answers of the agent API where a call does not say; NULL: as the settings say.';
-- A caller names a key before anybody knows the tenant, so an id is unique over all of them.
CREATE UNIQUE INDEX keys_by_id ON myria.keys (key_id);
CREATE INDEX keys_by_age ON myria.keys (tenant_id, created_at, key_id);
CREATE INDEX keys_by_replaced ON myria.keys (tenant_id, replaces_key_id) WHERE replaces_key_id IS NOT NULL;

CREATE TABLE myria.key_uses (
    tenant_id    text COLLATE "C" NOT NULL,
    key_id       text COLLATE "C" NOT NULL,
    last_used_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, key_id),
    FOREIGN KEY (tenant_id, key_id) REFERENCES myria.keys (tenant_id, key_id) ON DELETE CASCADE
);
COMMENT ON TABLE myria.key_uses IS 'When a key was last used, to some minutes; apart from keys, whose every change is looked at.';

CREATE TABLE myria.access_epoch (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    epoch     bigint NOT NULL DEFAULT 1
);
COMMENT ON TABLE myria.access_epoch IS 'One row: moves with every change of a key, or of who may use a tenant. Processes read it twice a second.';

INSERT INTO myria.access_epoch DEFAULT VALUES;

CREATE TABLE myria.access_log (
    tenant_id text COLLATE "C" NOT NULL,
    entry_id  bigint GENERATED ALWAYS AS IDENTITY,
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind      text NOT NULL CHECK (kind IN ('act', 'refusal')),
    actor     text NOT NULL,
    action    text NOT NULL,
    target    text,
    outcome   text NOT NULL,
    face      text,
    address   text,
    times     integer NOT NULL DEFAULT 1 CHECK (times > 0),
    details   jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (tenant_id, entry_id)
);
COMMENT ON TABLE myria.access_log IS 'Administrative acts, and refused attempts; never a secret. It outlives keys and tenants.';
COMMENT ON COLUMN myria.access_log.tenant_id IS '`-`, which no tenant can be called, where a refused attempt has no tenant.';
COMMENT ON COLUMN myria.access_log.times IS 'Equal attempts of about a second are one row.';
CREATE INDEX access_log_by_time ON myria.access_log (at);
-- Of what can be done to a thing once, whoever sends it again (a double click, a retry) does nothing.
CREATE UNIQUE INDEX access_log_once ON myria.access_log (tenant_id, action, target)
    WHERE kind = 'act' AND outcome = 'ok'
      AND action IN ('trigger_build', 'abort_build', 'publish_snapshot', 'discard_snapshot', 'erase');

CREATE TABLE myria.call_log (
    tenant_id  text COLLATE "C" NOT NULL,
    entry_id   bigint GENERATED ALWAYS AS IDENTITY,
    at         timestamptz NOT NULL,
    request_id text NOT NULL,
    principal  text NOT NULL,
    face       text NOT NULL,
    tool       text NOT NULL,
    context_id text,
    latency_ms real NOT NULL,
    outcome    text NOT NULL,
    PRIMARY KEY (tenant_id, entry_id)
);
COMMENT ON TABLE myria.call_log IS 'One row per call, or per sampled call, without anything of its content.';
CREATE INDEX call_log_by_time ON myria.call_log (at);

CREATE TABLE myria.oauth_clients (
    client_id       text COLLATE "C" PRIMARY KEY,
    name            text NOT NULL,
    redirect_uris   text[] COLLATE "C" NOT NULL CHECK (cardinality(redirect_uris) BETWEEN 1 AND 10),
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    registered_from text COLLATE "C"
);
COMMENT ON TABLE myria.oauth_clients IS 'Programs that registered themselves (RFC 7591). Anybody may, so nothing here is to be trusted.';
COMMENT ON COLUMN myria.oauth_clients.registered_from IS 'The network from which it registered, until a person first allows it something; then NULL.';
CREATE INDEX oauth_clients_by_age ON myria.oauth_clients (created_at);

CREATE TABLE myria.oauth_grants (
    tenant_id       text COLLATE "C" NOT NULL,
    grant_id        uuid NOT NULL DEFAULT gen_random_uuid(),
    key_id          text COLLATE "C" NOT NULL,
    client_id       text COLLATE "C" NOT NULL REFERENCES myria.oauth_clients (client_id) ON DELETE CASCADE,
    face            text COLLATE "C" NOT NULL,
    scopes          text[] COLLATE "C" NOT NULL,
    redirect_uri    text NOT NULL,
    challenge       text NOT NULL,
    code_digest     bytea NOT NULL CHECK (octet_length(code_digest) = 32),
    code_expires_at timestamptz NOT NULL,
    code_used_at    timestamptz,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at      timestamptz NOT NULL,
    ended_at        timestamptz,
    ended_reason    text,
    PRIMARY KEY (tenant_id, grant_id),
    FOREIGN KEY (tenant_id, key_id) REFERENCES myria.keys (tenant_id, key_id) ON DELETE CASCADE
);
COMMENT ON TABLE myria.oauth_grants IS 'What a person allowed a client with a key: a code, then a family of tokens. It ends with the key.';
CREATE UNIQUE INDEX oauth_grants_by_code ON myria.oauth_grants (code_digest);
CREATE INDEX oauth_grants_by_client ON myria.oauth_grants (client_id);
CREATE INDEX oauth_grants_by_key ON myria.oauth_grants (tenant_id, key_id);
CREATE INDEX oauth_grants_by_end ON myria.oauth_grants (expires_at);

CREATE TABLE myria.oauth_tokens (
    tenant_id  text COLLATE "C" NOT NULL,
    digest     bytea NOT NULL CHECK (octet_length(digest) = 32),
    grant_id   uuid NOT NULL,
    refreshes  boolean NOT NULL,
    expires_at timestamptz NOT NULL,
    used_at    timestamptz,
    PRIMARY KEY (tenant_id, digest),
    FOREIGN KEY (tenant_id, grant_id) REFERENCES myria.oauth_grants (tenant_id, grant_id) ON DELETE CASCADE
);
COMMENT ON COLUMN myria.oauth_tokens.used_at IS 'When a refresh token was exchanged; a second time ends its grant.';
-- A caller shows a token before anybody knows the tenant.
CREATE UNIQUE INDEX oauth_tokens_by_digest ON myria.oauth_tokens (digest);
CREATE INDEX oauth_tokens_by_grant ON myria.oauth_tokens (tenant_id, grant_id);

CREATE TABLE myria.console_sessions (
    tenant_id    text COLLATE "C" NOT NULL REFERENCES myria.tenants (tenant_id) ON DELETE CASCADE,
    digest       bytea NOT NULL CHECK (octet_length(digest) = 32),
    actor        text COLLATE "C" NOT NULL,
    key_id       text COLLATE "C",
    sealed_token bytea CHECK (octet_length(sealed_token) <= 8300),
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at   timestamptz NOT NULL,
    ended_at     timestamptz,
    PRIMARY KEY (tenant_id, digest),
    FOREIGN KEY (tenant_id, key_id) REFERENCES myria.keys (tenant_id, key_id) ON DELETE CASCADE,
    CHECK ((key_id IS NULL) = (sealed_token IS NOT NULL))
);
COMMENT ON TABLE myria.console_sessions IS 'Browsers in which somebody signed in, with a key or through an issuer. A session can do what its key or token can, and ends with it.';
COMMENT ON COLUMN myria.console_sessions.sealed_token IS 'The token of an issuer, sealed under a key that is made of the session''s secret, which the browser alone has.';
-- A browser shows its session before anybody knows the tenant.
CREATE UNIQUE INDEX console_sessions_by_digest ON myria.console_sessions (digest);
CREATE INDEX console_sessions_by_key ON myria.console_sessions (tenant_id, key_id);
CREATE INDEX console_sessions_by_actor ON myria.console_sessions (tenant_id, actor);
CREATE INDEX console_sessions_by_end ON myria.console_sessions (expires_at);
