-- What builds publish: snapshots and the pointer, content-addressed trees of time, and the subjects above their leaves.

CREATE TABLE myria.snapshots (
    tenant_id            text COLLATE "C" NOT NULL,
    snapshot_id          text COLLATE "C" NOT NULL,
    number               integer,
    parent_snapshot_id   text COLLATE "C",
    build_id             text COLLATE "C" NOT NULL,
    status               text NOT NULL CHECK (status IN ('staging', 'held', 'active', 'archived', 'superseded', 'failed')),
    cutoff               bigint NOT NULL,
    first_event_seq      bigint,
    tail_xid             xid8 NOT NULL,
    lineage              int8multirange NOT NULL DEFAULT '{}',
    planner_version      integer NOT NULL,
    planner_settings     text NOT NULL,
    builder_version      text NOT NULL,
    summarizer_version   text NOT NULL,
    merge_policy_version text NOT NULL,
    counts               jsonb NOT NULL DEFAULT '{}',
    violations           jsonb NOT NULL DEFAULT '[]',
    created_at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    completed_at         timestamptz,
    activated_at         timestamptz,
    archived_at          timestamptz,
    PRIMARY KEY (tenant_id, snapshot_id),
    UNIQUE (tenant_id, number),
    FOREIGN KEY (tenant_id, build_id) REFERENCES myria.builds (tenant_id, build_id),
    CHECK ((number IS NULL) <= (status IN ('failed', 'superseded')))
);
COMMENT ON COLUMN myria.snapshots.number IS 'Dense per tenant; NULL once the snapshot failed, and used again by the next build.';
COMMENT ON COLUMN myria.snapshots.lineage IS 'The numbers of this snapshot and its ancestors: whose scope_roots it reads.';
COMMENT ON COLUMN myria.snapshots.tail_xid IS 'Every event past the cutoff was appended by this transaction or a later one: a bound for index scans only.';
CREATE INDEX snapshots_newest ON myria.snapshots (tenant_id, created_at);
CREATE INDEX snapshots_held ON myria.snapshots (tenant_id) WHERE status = 'held';

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
    resource_name    text,
    resource_uid     text COLLATE "C",
    manager          text,
    PRIMARY KEY (tenant_id, move_id)
);
COMMENT ON TABLE myria.pointer_moves IS 'Append-only history of the pointer: who moved it, when, why, from and to.';
COMMENT ON COLUMN myria.pointer_moves.manager IS 'The field manager that asked on Kubernetes, as it called itself: not verified.';
CREATE INDEX pointer_moves_to ON myria.pointer_moves (tenant_id, to_snapshot_id, move_id);
CREATE UNIQUE INDEX pointer_moves_resource ON myria.pointer_moves (tenant_id, resource_uid) WHERE resource_uid IS NOT NULL;

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
COMMENT ON TABLE myria.renderings IS 'Immutable, content-addressed: a node with its label, summary, metadata and ordered children.';
CREATE INDEX renderings_node ON myria.renderings (tenant_id, node_id);

CREATE TYPE myria.new_node AS (
    rendering_id bytea, node_id bytea, node_type text, level smallint, topic_id text, anchor_seq bigint, anchor_event_id text,
    label text, summary text, metadata jsonb, children bytea[], child_leaves bytea[], event_seqs bigint[], weights smallint[],
    is_unit boolean, events integer, leaves integer, units integer, key_at timestamptz, key_digest bytea, key_event_id text,
    first_at timestamptz, last_at timestamptz);
COMMENT ON TYPE myria.new_node IS 'A node on its way into nodes, renderings and topics, or into subject_nodes (is_unit: is_subject; units: subjects).';

CREATE TABLE myria.scope_roots (
    tenant_id         text COLLATE "C" NOT NULL,
    scope_id          bigint NOT NULL,
    number            integer NOT NULL,
    root_rendering_id bytea,
    blocks            bytea[] NOT NULL,
    degraded          bytea[],
    PRIMARY KEY (tenant_id, scope_id, number)
);
COMMENT ON TABLE myria.scope_roots IS 'A row only where a build changed a scope: a reader takes the newest within its lineage.';
COMMENT ON COLUMN myria.scope_roots.root_rendering_id IS 'NULL where all events of the scope are withdrawn: it has no tree any more.';
COMMENT ON COLUMN myria.scope_roots.blocks IS 'The renderings whose search blocks cover the scope, in time order.';
COMMENT ON COLUMN myria.scope_roots.degraded IS 'The top renderings of the units that were planned without the model that was asked for.';

CREATE TABLE myria.search_blocks (
    tenant_id        text COLLATE "C" NOT NULL,
    rendering_id     bytea NOT NULL,
    analyzer_version smallint NOT NULL,
    scope_id         bigint NOT NULL,
    block            bytea NOT NULL,
    leaf_ids         bytea NOT NULL,
    PRIMARY KEY (tenant_id, rendering_id, analyzer_version)
);
-- Packed bytes and hashes: PostgreSQL would spend time on compressing them for little.
ALTER TABLE myria.search_blocks ALTER COLUMN block SET STORAGE EXTERNAL, ALTER COLUMN leaf_ids SET STORAGE EXTERNAL;
COMMENT ON TABLE myria.search_blocks IS 'Postings over the events of one part of a tree: a function of its rendering and the analyzer.';
COMMENT ON COLUMN myria.search_blocks.leaf_ids IS 'The node_ids of all leaves at and under the rendering, in a row.';

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

CREATE TABLE myria.subject_nodes (
    tenant_id       text COLLATE "C" NOT NULL,
    rendering_id    bytea NOT NULL,
    scope_id        bigint NOT NULL,
    node_id         bytea NOT NULL,
    level           smallint NOT NULL,
    topic_id        text COLLATE "C" NOT NULL,
    anchor_seq      bigint NOT NULL,
    anchor_event_id text COLLATE "C" NOT NULL,
    label           text NOT NULL,
    summary         text NOT NULL,
    metadata        jsonb NOT NULL,
    children        bytea[] NOT NULL,
    is_subject      boolean NOT NULL,
    events          integer NOT NULL,
    leaves          integer NOT NULL,
    subjects        integer NOT NULL,
    key_at          timestamptz NOT NULL,
    key_digest      bytea NOT NULL,
    key_event_id    text COLLATE "C" NOT NULL,
    first_at        timestamptz NOT NULL,
    last_at         timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, rendering_id)
);
COMMENT ON TABLE myria.subject_nodes IS 'Immutable, content-addressed: subjects, divisions of large ones and groups of them, over leaves in renderings.';
COMMENT ON COLUMN myria.subject_nodes.events IS 'Of all leaves beneath; a leaf counts under each of its subjects.';
CREATE INDEX subject_nodes_scope ON myria.subject_nodes (tenant_id, scope_id);
-- Answers name a subject by its topic and by its node.
CREATE INDEX subject_nodes_topic ON myria.subject_nodes (tenant_id, topic_id) WHERE is_subject;
CREATE INDEX subject_nodes_node ON myria.subject_nodes (tenant_id, node_id) WHERE is_subject;

CREATE TABLE myria.subject_roots (
    tenant_id         text COLLATE "C" NOT NULL,
    scope_id          bigint NOT NULL,
    number            integer NOT NULL,
    root_rendering_id bytea,
    since             integer NOT NULL,
    PRIMARY KEY (tenant_id, scope_id, number)
);
COMMENT ON TABLE myria.subject_roots IS 'A row only where a build changed the subjects of a scope: the newest within a lineage counts.';
COMMENT ON COLUMN myria.subject_roots.root_rendering_id IS 'NULL where nothing of the scope is a subject.';
COMMENT ON COLUMN myria.subject_roots.since IS 'The number under which the subjects were planned anew: older rows of subject_holders do not count.';

CREATE TABLE myria.subject_holders (
    tenant_id text COLLATE "C" NOT NULL,
    scope_id  bigint NOT NULL,
    key       bytea NOT NULL,
    number    integer NOT NULL,
    holders   bytea NOT NULL,
    subject   bytea,
    PRIMARY KEY (tenant_id, scope_id, key, number)
);
COMMENT ON TABLE myria.subject_holders IS 'Which leaves of a scope hold a key; of a lineage the newest row counts.';
COMMENT ON COLUMN myria.subject_holders.key IS 'The first 16 bytes of the SHA-256 of a key.';
COMMENT ON COLUMN myria.subject_holders.subject IS 'The rendering of the key''s subject; NULL where the key is none.';

-- What people with psql look at: the refs of leaves as rows, and a snapshot's tree.
CREATE VIEW myria.node_refs WITH (security_barrier) AS
SELECT n.tenant_id, n.node_id, e.event_id, r.event_seq, n.weights[r.position] AS weight, r.position
FROM myria.nodes n
CROSS JOIN LATERAL unnest(n.event_seqs) WITH ORDINALITY AS r (event_seq, position)
JOIN myria.events e ON e.tenant_id = n.tenant_id AND e.event_seq = r.event_seq;
COMMENT ON VIEW myria.node_refs IS 'Provenance as rows: leaf, event, weight, position.';
