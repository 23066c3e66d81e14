-- name: scope_root
-- A scope's newest tree within a snapshot's lineage.
SELECT r.number, r.root_rendering_id, r.blocks, r.degraded
FROM myria.snapshots s
CROSS JOIN LATERAL myria.root_within($1, $2, s.lineage) r
WHERE s.tenant_id = $1 AND s.snapshot_id = $3;

-- name: renderings
-- Nodes with their refs, in the order asked for, and what says who their first event is (its source key, else its payload
-- and how many events of its scope and microsecond were appended before it).
SELECT r.rendering_id, r.node_id, r.node_type, r.level, r.topic_id, r.anchor_seq, r.anchor_event_id, r.label, r.summary,
       r.metadata, r.children, r.child_leaves, r.is_unit, r.events, r.leaves, r.units, r.key_at, r.key_event_id,
       r.first_at, r.last_at, n.event_seqs, n.weights,
       CASE WHEN r.node_type = 'leaf_topic' THEN ARRAY(
           SELECT e.event_id FROM unnest(n.event_seqs) WITH ORDINALITY AS ref (event_seq, position)
           JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = ref.event_seq
           ORDER BY ref.position) END AS event_ids,
       k.dedupe_key AS key_dedupe, CASE WHEN k.dedupe_key IS NULL THEN k.payload END AS key_payload,
       CASE WHEN k.dedupe_key IS NULL THEN
           (SELECT count(*) FROM myria.events b
            WHERE b.tenant_id = $1 AND b.scope_id = r.scope_id AND b.occurred_at = r.key_at
              AND b.event_seq < k.event_seq AND NOT b.internal)
       END AS key_place
FROM unnest($2::bytea[]) WITH ORDINALITY AS wanted (rendering_id, position)
JOIN myria.renderings r ON r.tenant_id = $1 AND r.rendering_id = wanted.rendering_id
JOIN myria.nodes n ON n.tenant_id = $1 AND n.node_id = r.node_id
JOIN myria.events k ON k.tenant_id = $1 AND k.event_id = r.key_event_id
ORDER BY wanted.position;

-- name: leaf_node_ids
-- Every leaf under (or at) a rendering, one after the other as a single value: rows would take the builder three times the
-- time, and a long scope has very many. A node names its leaf children itself, so leaves are never read; beneath the node
-- of a search block, which has its leaves, nothing is.
-- (OFFSET 0 here and below: look each child up by its key, whatever the planner thinks of the number of children.)
WITH RECURSIVE inside AS (
    SELECT r.children, r.child_leaves, CASE WHEN r.node_type = 'leaf_topic' THEN r.node_id END AS itself,
           (SELECT b.leaf_ids FROM myria.search_blocks b
            WHERE b.tenant_id = $1 AND b.rendering_id = $2 LIMIT 1) AS leaf_ids
    FROM myria.renderings r WHERE r.tenant_id = $1 AND r.rendering_id = $2
    UNION ALL
    SELECT r.children, r.child_leaves, NULL::bytea, r.leaf_ids
    FROM inside i
    CROSS JOIN LATERAL unnest(i.children, i.child_leaves) AS child (rendering_id, leaf)
    CROSS JOIN LATERAL (
        SELECT x.children, x.child_leaves,
               (SELECT b.leaf_ids FROM myria.search_blocks b
                WHERE b.tenant_id = $1 AND b.rendering_id = x.rendering_id LIMIT 1) AS leaf_ids
        FROM myria.renderings x
        WHERE x.tenant_id = $1 AND x.rendering_id = child.rendering_id OFFSET 0) r
    WHERE i.leaf_ids IS NULL AND child.leaf = ''::bytea
), leaves AS (
    SELECT i.leaf_ids AS node_ids FROM inside i WHERE i.leaf_ids IS NOT NULL
    UNION ALL
    SELECT i.itself FROM inside i WHERE i.leaf_ids IS NULL AND i.itself IS NOT NULL
    UNION ALL
    SELECT leaf FROM inside i CROSS JOIN LATERAL unnest(i.child_leaves) AS leaf
    WHERE i.leaf_ids IS NULL AND leaf <> ''::bytea
)
SELECT coalesce(string_agg(node_ids, ''::bytea), ''::bytea) FROM leaves;

-- name: block_nodes
-- The nodes whose search blocks cover a tree, in reading order: the highest with at most $3 events (a unit: $4), and whether
-- their block is there. Below them nothing is read.
WITH RECURSIVE upper AS (
    SELECT r.rendering_id, r.children, r.events, r.is_unit, '{}'::bigint[] AS path
    FROM myria.renderings r WHERE r.tenant_id = $1 AND r.rendering_id = $2
    UNION ALL
    SELECT r.rendering_id, r.children, r.events, r.is_unit, u.path || child.position
    FROM upper u
    CROSS JOIN LATERAL unnest(u.children) WITH ORDINALITY AS child (rendering_id, position)
    CROSS JOIN LATERAL (
        SELECT x.rendering_id, x.children, x.events, x.is_unit FROM myria.renderings x
        WHERE x.tenant_id = $1 AND x.rendering_id = child.rendering_id OFFSET 0) r
    WHERE u.events > $3 AND NOT (u.is_unit AND u.events <= $4)
)
SELECT u.rendering_id,
       EXISTS (SELECT FROM myria.search_blocks x
               WHERE x.tenant_id = $1 AND x.rendering_id = u.rendering_id AND x.analyzer_version = $5) AS present
FROM upper u
WHERE u.events <= $3 OR (u.is_unit AND u.events <= $4) OR u.children = '{}'
ORDER BY u.path;

-- name: under
-- The tree at and under a rendering, parents before children, with the ids and the events of its leaves.
WITH RECURSIVE tree AS (
    SELECT r.rendering_id, r.node_id, r.node_type, r.level, r.children, NULL::bytea AS parent_id, 0 AS depth
    FROM myria.renderings r WHERE r.tenant_id = $1 AND r.rendering_id = $2
    UNION ALL
    SELECT r.rendering_id, r.node_id, r.node_type, r.level, r.children, t.rendering_id, t.depth + 1
    FROM tree t
    CROSS JOIN LATERAL unnest(t.children) AS child
    CROSS JOIN LATERAL (
        SELECT x.rendering_id, x.node_id, x.node_type, x.level, x.children FROM myria.renderings x
        WHERE x.tenant_id = $1 AND x.rendering_id = child OFFSET 0) r
)
SELECT t.rendering_id, t.parent_id, t.level, t.node_type,
       CASE WHEN t.node_type = 'leaf_topic' THEN t.node_id END AS leaf_id, CASE WHEN t.node_type = 'leaf_topic' THEN
           (SELECT n.event_seqs FROM myria.nodes n WHERE n.tenant_id = $1 AND n.node_id = t.node_id LIMIT 1)
       END AS event_seqs
FROM tree t
ORDER BY t.depth, t.rendering_id;

-- name: changes
-- What may have changed of a scope between the parent's cutoff and the build's: its new events that count, and older
-- ones of which a withdrawal in between says something; whether each belongs into the old tree, and into the new one,
-- and whether it is erased.
-- The bound on xid only keeps the index scan short: every event past the parent's cutoff was appended by that
-- transaction or a later one.
SELECT e.event_seq, e.occurred_at, true AS is_new, false AS was_there, false AS is_erased,
       NOT myria.is_withdrawn($1, e.event_seq, $5) AS is_there
FROM myria.events e
WHERE e.tenant_id = $1 AND e.scope_id = $2 AND e.xid >= $3::text::xid8
  AND e.event_seq > $4 AND e.event_seq <= $5 AND NOT e.internal
UNION ALL
SELECT e.event_seq, e.occurred_at, false,
       NOT myria.is_withdrawn($1, e.event_seq, $4),
       EXISTS (SELECT FROM myria.erased x WHERE x.tenant_id = $1 AND x.event_seq = e.event_seq),
       NOT myria.is_withdrawn($1, e.event_seq, $5)
FROM (
    SELECT DISTINCT w.event_seq FROM myria.withdrawn w
    WHERE w.tenant_id = $1 AND w.scope_id = $2 AND w.by_event_seq > $4 AND w.by_event_seq <= $5 AND w.event_seq <= $4
) named
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = named.event_seq
WHERE NOT e.internal;

-- name: count_events
-- The events of a scope that count and are not withdrawn. Few are: they are counted apart.
SELECT (SELECT count(*) FROM myria.events e
        WHERE e.tenant_id = $1 AND e.scope_id = $2 AND e.event_seq <= $3 AND NOT e.internal)
     - (SELECT count(*)
        FROM (
            SELECT DISTINCT ON (w.event_seq) w.event_seq, w.reason FROM myria.withdrawn w
            WHERE w.tenant_id = $1 AND w.scope_id = $2 AND w.by_event_seq <= $3
            ORDER BY w.event_seq, w.by_event_seq DESC
        ) newest
        JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = newest.event_seq
        WHERE newest.reason <> 'restored' AND NOT e.internal);

-- name: events_after
-- The next page of a scope's events that count, in the order of (timestamp, event_seq). What belongs neither into the new
-- tree nor into the old one ($7 is the parent's cutoff, 0 where there is none) keeps its place, and nothing else of it.
-- Times are microseconds since 1970: a build reads very many, and needs no objects of them.
SELECT page.event_seq, page.event_id, (extract(epoch FROM page.occurred_at) * 1000000)::bigint AS at, page.utc_offset,
       page.channel, page.dedupe_key, page.type, page.context_id,
       CASE WHEN page.is_there THEN page.payload END AS payload, page.topic_hints, page.is_there
FROM (
    SELECT e.*, NOT myria.is_withdrawn($1, e.event_seq, $5)
                OR e.event_seq <= $7 AND NOT myria.is_withdrawn($1, e.event_seq, $7) AS is_there
    FROM myria.events e
    WHERE e.tenant_id = $1 AND e.scope_id = $2 AND (e.occurred_at, e.event_seq) > ($3, $4)
      AND e.event_seq <= $5 AND NOT e.internal
    ORDER BY e.occurred_at, e.event_seq
    LIMIT $6
) page
ORDER BY page.occurred_at, page.event_seq;

-- name: events_before
-- The page before a position, nearest first.
SELECT page.event_seq, page.event_id, (extract(epoch FROM page.occurred_at) * 1000000)::bigint AS at, page.utc_offset,
       page.channel, page.dedupe_key, page.type, page.context_id,
       CASE WHEN page.is_there THEN page.payload END AS payload, page.topic_hints, page.is_there
FROM (
    SELECT e.*, NOT myria.is_withdrawn($1, e.event_seq, $5)
                OR e.event_seq <= $7 AND NOT myria.is_withdrawn($1, e.event_seq, $7) AS is_there
    FROM myria.events e
    WHERE e.tenant_id = $1 AND e.scope_id = $2 AND (e.occurred_at, e.event_seq) < ($3, $4)
      AND e.event_seq <= $5 AND NOT e.internal
    ORDER BY e.occurred_at DESC, e.event_seq DESC
    LIMIT $6
) page
ORDER BY page.occurred_at DESC, page.event_seq DESC;

-- name: place
-- How many events of a scope that count were appended before this one, of the same microsecond.
SELECT count(*) FROM myria.events e
WHERE e.tenant_id = $1 AND e.scope_id = $2 AND e.occurred_at = $3 AND e.event_seq < $4 AND NOT e.internal;

-- name: events_by_seq
SELECT e.event_seq, e.event_id, e.occurred_at, e.utc_offset, e.channel, e.type, e.context_id, e.payload, e.topic_hints
FROM unnest($2::bigint[]) AS wanted
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = wanted;

-- name: write_nodes
-- Nodes, renderings and topics of one batch; how many were new. What is there already is the same. Each table takes its rows
-- in the order of its key, so that two writers never wait crosswise.
WITH new AS MATERIALIZED (
    SELECT * FROM unnest($3::myria.new_node[])
), nodes AS (
    INSERT INTO myria.nodes (tenant_id, scope_id, node_id, node_type, event_seqs, weights)
    SELECT $1, $2, n.node_id, n.node_type, n.event_seqs, n.weights FROM new n ORDER BY n.node_id
    ON CONFLICT DO NOTHING RETURNING 1
), renderings AS (
    INSERT INTO myria.renderings (tenant_id, scope_id, rendering_id, node_id, node_type, level, topic_id, anchor_seq,
                                  anchor_event_id, label, summary, metadata, children, child_leaves, is_unit, events, leaves,
                                  units, key_at, key_event_id, first_at, last_at)
    SELECT $1, $2, n.rendering_id, n.node_id, n.node_type, n.level, n.topic_id, n.anchor_seq, n.anchor_event_id, n.label,
           n.summary, n.metadata, n.children, n.child_leaves, n.is_unit, n.events, n.leaves, n.units, n.key_at,
           n.key_event_id, n.first_at, n.last_at
    FROM new n ORDER BY n.rendering_id
    ON CONFLICT DO NOTHING RETURNING 1
), topics AS (
    INSERT INTO myria.topics (tenant_id, scope_id, topic_id, node_type, level, anchor_seq, anchor_event_id, anchor_at)
    SELECT $1, $2, n.topic_id, n.node_type, n.level, n.anchor_seq, n.anchor_event_id, e.occurred_at
    FROM new n JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = n.anchor_seq ORDER BY n.topic_id
    ON CONFLICT DO NOTHING RETURNING 1
)
SELECT (SELECT count(*) FROM nodes) AS nodes, (SELECT count(*) FROM renderings) AS renderings,
       (SELECT count(*) FROM topics) AS topics;

-- name: write_block
INSERT INTO myria.search_blocks (tenant_id, rendering_id, analyzer_version, scope_id, block, leaf_ids)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT DO NOTHING RETURNING 1;
