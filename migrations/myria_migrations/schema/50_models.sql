-- What language models were asked, what it cost, and the plans of theirs that were found valid. Empty where no model is
-- configured.

CREATE TABLE myria.llm_calls (
    tenant_id     text COLLATE "C" NOT NULL,
    call_id       text COLLATE "C" NOT NULL,
    workflow      text NOT NULL CHECK (workflow IN ('build', 'walk', 'evaluate', 'extract', 'look')),
    build_id      text COLLATE "C",
    scope_id      bigint,
    unit          bytea,
    request_id    text COLLATE "C",
    round         integer NOT NULL,
    attempt       integer NOT NULL,
    mask          text[] COLLATE "C" NOT NULL,
    mask_scopes   bigint[] NOT NULL,
    model         text NOT NULL,
    structure     text NOT NULL,
    prompt        text,
    prompt_sha256 bytea,
    prompt_bytes  integer NOT NULL,
    reply         text,
    reply_sha256  bytea,
    reply_bytes   integer NOT NULL,
    tools         jsonb NOT NULL DEFAULT '[]',
    input_tokens  integer NOT NULL,
    output_tokens integer NOT NULL,
    cost_microusd bigint NOT NULL,
    latency_ms    integer NOT NULL,
    outcome       text NOT NULL,
    message       text,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, call_id)
);
COMMENT ON TABLE myria.llm_calls IS 'The audit: one row per request to a provider. Secrets are taken out before anything is written.';
COMMENT ON COLUMN myria.llm_calls.mask IS 'The participants for whom the model worked: it was shown nothing that one of them may not see.';
COMMENT ON COLUMN myria.llm_calls.prompt IS 'The messages that the workflow''s request before did not have, as JSON; null unless llm.audit is full.';
COMMENT ON COLUMN myria.llm_calls.tools IS 'The tools that the reply called: arguments, bytes shown, names of the SQL run, outcome.';
CREATE INDEX llm_calls_age ON myria.llm_calls (tenant_id, created_at);
CREATE INDEX llm_calls_build ON myria.llm_calls (tenant_id, build_id) WHERE build_id IS NOT NULL;

CREATE TABLE myria.model_uses (
    tenant_id text COLLATE "C" NOT NULL PRIMARY KEY,
    day       date NOT NULL,
    tokens    bigint NOT NULL
);
COMMENT ON TABLE myria.model_uses IS 'Tokens that a tenant''s builds and walks used on the last day (UTC) on which they used any.';

CREATE TABLE myria.unit_plans (
    tenant_id  text COLLATE "C" NOT NULL,
    scope_id   bigint NOT NULL,
    unit       bytea NOT NULL,
    planner    bytea NOT NULL,
    plan       jsonb NOT NULL,
    model      text NOT NULL,
    build_id   text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, scope_id, unit, planner)
);
COMMENT ON TABLE myria.unit_plans IS 'Valid plans of a model, by the hash of the unit''s event ids and the planner''s settings: whoever plans this unit again uses it, without a model. Never changed.';

CREATE TABLE myria.build_units (
    tenant_id text COLLATE "C" NOT NULL,
    build_id  text COLLATE "C" NOT NULL,
    scope_id  bigint NOT NULL,
    unit      bytea NOT NULL,
    planned   boolean NOT NULL,
    reason    text,
    PRIMARY KEY (tenant_id, build_id, scope_id, unit),
    FOREIGN KEY (tenant_id, build_id) REFERENCES myria.builds (tenant_id, build_id) ON DELETE CASCADE
);
COMMENT ON TABLE myria.build_units IS 'Which units a build planned by a stored plan, and which it meant to and could not: what a replay goes by.';
