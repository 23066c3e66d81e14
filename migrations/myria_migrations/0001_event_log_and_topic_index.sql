-- The event log, the scopes it names, and the TopicIndex compiled from it.
--
-- tenant_id leads every key. Row-level security is forced on every table: a transaction sees the rows of the tenant
-- it names in the setting myria.tenant, and no rows before it names one. The control plane names '*'; the roles
-- that serve and build carry a restrictive policy that refuses that (see roles.sql).

CREATE SEQUENCE myria.event_seq AS bigint CACHE 1;

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
    retry_at             timestamptz
);
COMMENT ON TABLE myria.tenants IS 'One row per memory; written by builds and rollbacks, never by an append.';
COMMENT ON COLUMN myria.tenants.attempted_cutoff IS 'Greatest cutoff any build tried: automatic triggers count only events past it.';

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

CREATE TABLE myria.scope_members (
    tenant_id   text COLLATE "C" NOT NULL,
    participant text COLLATE "C" NOT NULL,
    scope_id    bigint NOT NULL,
    PRIMARY KEY (tenant_id, participant, scope_id),
    FOREIGN KEY (tenant_id, scope_id) REFERENCES myria.scopes (tenant_id, scope_id)
);

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
CREATE UNIQUE INDEX events_dedupe ON myria.events (tenant_id, dedupe_key) WHERE dedupe_key IS NOT NULL;
CREATE INDEX events_scope_time ON myria.events (tenant_id, scope_id, occurred_at, event_seq);
CREATE INDEX events_scope_xid ON myria.events (tenant_id, scope_id, xid, event_seq);
CREATE INDEX events_internal ON myria.events (tenant_id, scope_id, xid, event_seq) WHERE internal;

CREATE TABLE myria.builds (
    tenant_id          text COLLATE "C" NOT NULL,
    build_id           text COLLATE "C" NOT NULL,
    status             text NOT NULL DEFAULT 'queued'
                       CHECK (status IN ('queued', 'running', 'succeeded', 'held', 'superseded', 'failed', 'aborted')),
    trigger            text NOT NULL CHECK (trigger IN ('manual', 'inactivity', 'tail_threshold')),
    is_full            boolean NOT NULL DEFAULT false,
    hold               boolean NOT NULL DEFAULT false,
    reason             text,
    request_id         text COLLATE "C",
    parent_snapshot_id text COLLATE "C",
    snapshot_id        text COLLATE "C",
    cutoff             bigint,
    created_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at         timestamptz,
    finished_at        timestamptz,
    lease_until        timestamptz,
    error              jsonb,
    counts             jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (tenant_id, build_id),
    CHECK ((finished_at IS NULL) = (status IN ('queued', 'running')))
);
CREATE UNIQUE INDEX builds_one_unfinished ON myria.builds (tenant_id) WHERE finished_at IS NULL;
CREATE INDEX builds_newest ON myria.builds (tenant_id, created_at);

CREATE TABLE myria.snapshots (
    tenant_id              text COLLATE "C" NOT NULL,
    snapshot_id            text COLLATE "C" NOT NULL,
    number                 integer,
    parent_snapshot_id     text COLLATE "C",
    build_id               text COLLATE "C" NOT NULL,
    status                 text NOT NULL CHECK (status IN ('staging', 'held', 'active', 'archived', 'superseded', 'failed')),
    cutoff                 bigint NOT NULL,
    first_event_seq        bigint,
    tail_xid               xid8 NOT NULL,
    lineage                int8multirange NOT NULL DEFAULT '{}',
    planner_version        integer NOT NULL,
    planner_settings       text NOT NULL,
    builder_version        text NOT NULL,
    summarizer_version     text NOT NULL,
    merge_policy_version   text NOT NULL,
    counts                 jsonb NOT NULL DEFAULT '{}',
    violations             jsonb NOT NULL DEFAULT '[]',
    created_at             timestamptz NOT NULL DEFAULT clock_timestamp(),
    completed_at           timestamptz,
    activated_at           timestamptz,
    archived_at            timestamptz,
    PRIMARY KEY (tenant_id, snapshot_id),
    UNIQUE (tenant_id, number),
    FOREIGN KEY (tenant_id, build_id) REFERENCES myria.builds (tenant_id, build_id),
    CHECK ((number IS NULL) <= (status IN ('failed', 'superseded')))
);
CREATE INDEX snapshots_newest ON myria.snapshots (tenant_id, created_at);
CREATE INDEX snapshots_held ON myria.snapshots (tenant_id) WHERE status = 'held';
COMMENT ON COLUMN myria.snapshots.number IS 'Dense per tenant; NULL once the snapshot failed, and used again by the next build.';
COMMENT ON COLUMN myria.snapshots.lineage IS 'The numbers of this snapshot and its ancestors: whose scope_roots it reads.';
COMMENT ON COLUMN myria.snapshots.tail_xid IS 'Every event past the cutoff was appended by this transaction or a later one: a bound for index scans only.';

CREATE TABLE myria.active_snapshots (
    tenant_id   text COLLATE "C" PRIMARY KEY,
    snapshot_id text COLLATE "C" NOT NULL,
    moved_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    FOREIGN KEY (tenant_id, snapshot_id) REFERENCES myria.snapshots (tenant_id, snapshot_id)
);
COMMENT ON TABLE myria.active_snapshots IS 'The pointer: moved by compare-and-set under the publish lock, read once per request.';

CREATE TABLE myria.pointer_moves (
    tenant_id        text COLLATE "C" NOT NULL,
    move_id          bigint GENERATED ALWAYS AS IDENTITY,
    kind             text NOT NULL CHECK (kind IN ('publish', 'rollback')),
    from_snapshot_id text COLLATE "C",
    to_snapshot_id   text COLLATE "C" NOT NULL,
    actor            text NOT NULL,
    reason           text,
    moved_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, move_id)
);
COMMENT ON TABLE myria.pointer_moves IS 'Append-only history of the pointer: who moved it, when, why, from and to.';

CREATE TABLE myria.build_tasks (
    tenant_id         text COLLATE "C" NOT NULL,
    build_id          text COLLATE "C" NOT NULL,
    scope_id          bigint NOT NULL,
    status            text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'done', 'failed')),
    attempt           integer NOT NULL DEFAULT 0,
    worker            text,
    lease_until       timestamptz,
    root_rendering_id bytea,
    counts            jsonb NOT NULL DEFAULT '{}',
    degraded_reason   text,
    error             jsonb,
    PRIMARY KEY (tenant_id, build_id, scope_id),
    FOREIGN KEY (tenant_id, build_id) REFERENCES myria.builds (tenant_id, build_id) ON DELETE CASCADE
);
CREATE INDEX build_tasks_open ON myria.build_tasks (tenant_id, build_id, scope_id) WHERE status <> 'done';
COMMENT ON COLUMN myria.build_tasks.attempt IS 'The fencing token: finishing a task is a compare-and-set on it.';

CREATE TABLE myria.rebuild_requests (
    tenant_id  text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    cause_key  text COLLATE "C" NOT NULL,
    trigger    text NOT NULL CHECK (trigger IN ('manual', 'inactivity', 'tail_threshold')),
    is_full    boolean NOT NULL DEFAULT false,
    hold       boolean NOT NULL DEFAULT false,
    reason     text,
    actor      text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    build_id   text COLLATE "C",
    PRIMARY KEY (tenant_id, request_id),
    UNIQUE (tenant_id, cause_key)
);
CREATE INDEX rebuild_requests_waiting ON myria.rebuild_requests (tenant_id, created_at) WHERE build_id IS NULL;
COMMENT ON TABLE myria.rebuild_requests IS 'Every cause of a build, once: unique on its cause. A row with a build_id was taken up.';

CREATE TABLE myria.nodes (
    tenant_id  text COLLATE "C" NOT NULL,
    node_id    bytea NOT NULL,
    scope_id   bigint NOT NULL,
    node_type  text NOT NULL CHECK (node_type IN ('leaf_topic', 'internal_topic')),
    event_seqs bigint[] NOT NULL DEFAULT '{}',
    weights    smallint[] NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, node_id),
    CHECK (cardinality(event_seqs) = cardinality(weights)),
    CHECK ((node_type = 'leaf_topic') = (cardinality(event_seqs) > 0))
);
COMMENT ON TABLE myria.nodes IS 'Content-addressed identities: a leaf and its event refs, in order; a function of node_id.';

CREATE TABLE myria.renderings (
    tenant_id       text COLLATE "C" NOT NULL,
    rendering_id    bytea NOT NULL,
    scope_id        bigint NOT NULL,
    node_id         bytea NOT NULL,
    node_type       text NOT NULL CHECK (node_type IN ('leaf_topic', 'internal_topic')),
    level           smallint NOT NULL,
    topic_id        text COLLATE "C" NOT NULL,
    anchor_seq      bigint NOT NULL,
    anchor_event_id text COLLATE "C" NOT NULL,
    label           text NOT NULL,
    summary         text NOT NULL,
    metadata        jsonb NOT NULL,
    children        bytea[] NOT NULL DEFAULT '{}',
    child_leaves    bytea[] NOT NULL DEFAULT '{}',
    is_unit         boolean NOT NULL,
    events          integer NOT NULL,
    leaves          integer NOT NULL,
    units           integer NOT NULL,
    key_at          timestamptz NOT NULL,
    key_event_id    text COLLATE "C" NOT NULL,
    first_at        timestamptz NOT NULL,
    last_at         timestamptz NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, rendering_id)
);
CREATE INDEX renderings_node ON myria.renderings (tenant_id, node_id);
COMMENT ON TABLE myria.renderings IS 'Immutable, content-addressed: a node with its label, summary, metadata and ordered children.';

CREATE TABLE myria.scope_roots (
    tenant_id         text COLLATE "C" NOT NULL,
    scope_id          bigint NOT NULL,
    number            integer NOT NULL,
    root_rendering_id bytea NOT NULL,
    blocks            bytea[] NOT NULL,
    PRIMARY KEY (tenant_id, scope_id, number)
);
COMMENT ON TABLE myria.scope_roots IS 'A row only where a build changed a scope: a reader takes the newest within its lineage.';
COMMENT ON COLUMN myria.scope_roots.blocks IS 'The renderings whose search blocks cover the scope, in time order.';

CREATE TABLE myria.search_blocks (
    tenant_id        text COLLATE "C" NOT NULL,
    rendering_id     bytea NOT NULL,
    analyzer_version smallint NOT NULL,
    scope_id         bigint NOT NULL,
    block            bytea NOT NULL,
    PRIMARY KEY (tenant_id, rendering_id, analyzer_version)
);
ALTER TABLE myria.search_blocks ALTER COLUMN block SET STORAGE EXTERNAL;
COMMENT ON TABLE myria.search_blocks IS 'Postings over the events of one part of a tree: a function of its rendering and the analyzer.';

CREATE TABLE myria.topics (
    tenant_id       text COLLATE "C" NOT NULL,
    topic_id        text COLLATE "C" NOT NULL,
    scope_id        bigint NOT NULL,
    node_type       text NOT NULL CHECK (node_type IN ('leaf_topic', 'internal_topic')),
    level           smallint NOT NULL,
    anchor_seq      bigint NOT NULL,
    anchor_event_id text COLLATE "C" NOT NULL,
    anchor_at       timestamptz NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, topic_id)
);
COMMENT ON TABLE myria.topics IS 'Every topic that ever was, by its anchor event; where it is now is read from the snapshot.';

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['tenants', 'scopes', 'scope_members', 'events', 'builds', 'snapshots', 'active_snapshots',
        'pointer_moves', 'build_tasks', 'rebuild_requests', 'nodes', 'renderings', 'scope_roots', 'search_blocks', 'topics']
    LOOP
        EXECUTE format('ALTER TABLE myria.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE myria.%I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format($p$CREATE POLICY tenant_named ON myria.%I
            USING (tenant_id = current_setting('myria.tenant', true) OR current_setting('myria.tenant', true) = '*')$p$, name);
    END LOOP;
END $$;

-- What people with psql look at: the refs of leaves as rows, and a snapshot's tree.

CREATE VIEW myria.node_refs WITH (security_barrier) AS
SELECT n.tenant_id, n.node_id, e.event_id, r.event_seq, n.weights[r.position] AS weight, r.position
FROM myria.nodes n
CROSS JOIN LATERAL unnest(n.event_seqs) WITH ORDINALITY AS r (event_seq, position)
JOIN myria.events e ON e.tenant_id = n.tenant_id AND e.event_seq = r.event_seq;
COMMENT ON VIEW myria.node_refs IS 'Provenance as rows: leaf, event, weight, position.';

CREATE FUNCTION myria.snapshot_tree(tenant text, snapshot text)
RETURNS TABLE (
    participants text[], depth integer, node_type text, label text, summary text, events integer,
    first_at timestamptz, last_at timestamptz, topic_id text, node_id bytea, rendering_id bytea
)
LANGUAGE sql STABLE
AS $$
    WITH RECURSIVE pinned AS (
        SELECT s.lineage FROM myria.snapshots s WHERE s.tenant_id = tenant AND s.snapshot_id = snapshot
    ), tree AS (
        SELECT c.participants, 0 AS depth, r, ARRAY[c.scope_id] AS path
        FROM pinned p
        CROSS JOIN myria.scopes c
        CROSS JOIN LATERAL (
            SELECT x.root_rendering_id FROM myria.scope_roots x
            WHERE x.tenant_id = tenant AND x.scope_id = c.scope_id AND x.number::bigint <@ p.lineage
            ORDER BY x.number DESC LIMIT 1
        ) root
        JOIN myria.renderings r ON r.tenant_id = tenant AND r.rendering_id = root.root_rendering_id
        WHERE c.tenant_id = tenant
        UNION ALL
        SELECT t.participants, t.depth + 1, r, t.path || child.position
        FROM tree t
        CROSS JOIN LATERAL unnest((t.r).children) WITH ORDINALITY AS child (rendering_id, position)
        JOIN myria.renderings r ON r.tenant_id = tenant AND r.rendering_id = child.rendering_id
    )
    SELECT participants, depth, (r).node_type, (r).label, (r).summary, (r).events, (r).first_at, (r).last_at,
           (r).topic_id, (r).node_id, (r).rendering_id
    FROM tree ORDER BY path
$$;
COMMENT ON FUNCTION myria.snapshot_tree IS 'A snapshot''s trees in reading order: SELECT repeat(''  '', depth) || label FROM myria.snapshot_tree(...).';
