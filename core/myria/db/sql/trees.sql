-- name: scope_root
-- A scope's newest tree within a lineage.
SELECT r.number, r.root_rendering_id, r.blocks, r.degraded
FROM myria.scope_roots r
WHERE r.tenant_id = $1 AND r.scope_id = $2
  AND r.number::bigint <@ (SELECT s.lineage FROM myria.snapshots s WHERE s.tenant_id = $1 AND s.snapshot_id = $3)
ORDER BY r.number DESC
LIMIT 1;

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

-- name: renderings_alone
-- The same without refs: a plan of subjects reads each leaf several times, and asks for what it says, not for its events.
SELECT r.rendering_id, r.node_id, r.node_type, r.level, r.topic_id, r.anchor_seq, r.anchor_event_id, r.label, r.summary,
       r.metadata, r.children, r.child_leaves, r.is_unit, r.events, r.leaves, r.units, r.key_at, r.key_event_id,
       r.first_at, r.last_at, k.dedupe_key AS key_dedupe, CASE WHEN k.dedupe_key IS NULL THEN k.payload END AS key_payload,
       CASE WHEN k.dedupe_key IS NULL THEN
           (SELECT count(*) FROM myria.events b
            WHERE b.tenant_id = $1 AND b.scope_id = r.scope_id AND b.occurred_at = r.key_at
              AND b.event_seq < k.event_seq AND NOT b.internal)
       END AS key_place
FROM unnest($2::bytea[]) WITH ORDINALITY AS wanted (rendering_id, position)
JOIN myria.renderings r ON r.tenant_id = $1 AND r.rendering_id = wanted.rendering_id
JOIN myria.events k ON k.tenant_id = $1 AND k.event_id = r.key_event_id
ORDER BY wanted.position;

-- name: leaf_node_ids
-- Every leaf under (or at) a rendering, one after the other as a single value: rows would take the builder three times the
-- time, and a long scope has very many. A node names its leaf children itself, so leaves are never read; beneath the node
-- of a search block that has its leaves nothing is.
-- (OFFSET 0 here and below: look each child up by its key, whatever the planner thinks of the number of children.)
WITH RECURSIVE inside AS (
    SELECT r.children, r.child_leaves, CASE WHEN r.node_type = 'leaf_topic' THEN r.node_id END AS itself,
           (SELECT b.leaf_ids FROM myria.search_blocks b
            WHERE b.tenant_id = $1 AND b.rendering_id = $2 AND b.leaf_ids IS NOT NULL LIMIT 1) AS leaf_ids
    FROM myria.renderings r WHERE r.tenant_id = $1 AND r.rendering_id = $2
    UNION ALL
    SELECT r.children, r.child_leaves, NULL::bytea, r.leaf_ids
    FROM inside i
    CROSS JOIN LATERAL unnest(i.children, i.child_leaves) AS child (rendering_id, leaf)
    CROSS JOIN LATERAL (
        SELECT x.children, x.child_leaves,
               (SELECT b.leaf_ids FROM myria.search_blocks b
                WHERE b.tenant_id = $1 AND b.rendering_id = x.rendering_id AND b.leaf_ids IS NOT NULL LIMIT 1) AS leaf_ids
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

-- name: leaf_node_ids_of_blocks
-- Every leaf under some search blocks as one value, without a look at the tree; null unless each block has its leaves.
SELECT CASE WHEN count(b.leaf_ids) = cardinality($2::bytea[]) THEN string_agg(b.leaf_ids, ''::bytea) END
FROM unnest($2::bytea[]) AS wanted
CROSS JOIN LATERAL (
    SELECT x.leaf_ids FROM myria.search_blocks x
    WHERE x.tenant_id = $1 AND x.rendering_id = wanted AND x.leaf_ids IS NOT NULL LIMIT 1) b;

-- name: note_leaf_ids
-- The leaves of a search block that an older version wrote.
UPDATE myria.search_blocks SET leaf_ids = $4
WHERE tenant_id = $1 AND rendering_id = $2 AND analyzer_version = $3 AND leaf_ids IS NULL;

-- name: block_nodes
-- The nodes whose search blocks cover a tree, in reading order: the highest with at most $3 events (a unit: $4), whether
-- their block is there, and whether it has its leaves. Below them nothing is read.
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
SELECT u.rendering_id, b.has_leaves IS NOT NULL AS present, coalesce(b.has_leaves, false) AS has_leaves
FROM upper u
LEFT JOIN LATERAL (
    SELECT x.leaf_ids IS NOT NULL AS has_leaves FROM myria.search_blocks x
    WHERE x.tenant_id = $1 AND x.rendering_id = u.rendering_id AND x.analyzer_version = $5 LIMIT 1) b ON true
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
       NOT coalesce((SELECT w.reason <> 'restored' FROM myria.withdrawn w
                     WHERE w.tenant_id = $1 AND w.event_seq = e.event_seq AND w.by_event_seq <= $5
                     ORDER BY w.by_event_seq DESC LIMIT 1), false) AS is_there
FROM myria.events e
WHERE e.tenant_id = $1 AND e.scope_id = $2 AND e.xid >= $3::text::xid8
  AND e.event_seq > $4 AND e.event_seq <= $5 AND NOT e.internal
UNION ALL
SELECT e.event_seq, e.occurred_at, false,
       NOT coalesce((SELECT w.reason <> 'restored' FROM myria.withdrawn w
                     WHERE w.tenant_id = $1 AND w.event_seq = e.event_seq AND w.by_event_seq <= $4
                     ORDER BY w.by_event_seq DESC LIMIT 1), false),
       EXISTS (SELECT FROM myria.erased x WHERE x.tenant_id = $1 AND x.event_seq = e.event_seq),
       NOT coalesce((SELECT w.reason <> 'restored' FROM myria.withdrawn w
                     WHERE w.tenant_id = $1 AND w.event_seq = e.event_seq AND w.by_event_seq <= $5
                     ORDER BY w.by_event_seq DESC LIMIT 1), false)
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
    SELECT e.*, NOT coalesce((SELECT w.reason <> 'restored' FROM myria.withdrawn w
                     WHERE w.tenant_id = $1 AND w.event_seq = e.event_seq AND w.by_event_seq <= $5
                     ORDER BY w.by_event_seq DESC LIMIT 1), false)
                OR e.event_seq <= $7 AND NOT coalesce((SELECT w.reason <> 'restored' FROM myria.withdrawn w
                     WHERE w.tenant_id = $1 AND w.event_seq = e.event_seq AND w.by_event_seq <= $7
                     ORDER BY w.by_event_seq DESC LIMIT 1), false) AS is_there
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
    SELECT e.*, NOT coalesce((SELECT w.reason <> 'restored' FROM myria.withdrawn w
                     WHERE w.tenant_id = $1 AND w.event_seq = e.event_seq AND w.by_event_seq <= $5
                     ORDER BY w.by_event_seq DESC LIMIT 1), false)
                OR e.event_seq <= $7 AND NOT coalesce((SELECT w.reason <> 'restored' FROM myria.withdrawn w
                     WHERE w.tenant_id = $1 AND w.event_seq = e.event_seq AND w.by_event_seq <= $7
                     ORDER BY w.by_event_seq DESC LIMIT 1), false) AS is_there
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
-- Content-addressed: what is there already is the same. Rows come sorted, so that two writers never wait crosswise.
INSERT INTO myria.nodes (tenant_id, node_id, scope_id, node_type, event_seqs, weights)
SELECT $1, i.node_id, $2, i.node_type, i.event_seqs::bigint[], i.weights::smallint[]
FROM unnest($3::text::bytea[], $4::text::text[], $5::text::text[], $6::text::text[]) WITH ORDINALITY
     AS i (node_id, node_type, event_seqs, weights, position)
ORDER BY i.position
ON CONFLICT DO NOTHING;

-- name: write_renderings
-- Times are microseconds since 1970.
INSERT INTO myria.renderings (tenant_id, rendering_id, scope_id, node_id, node_type, level, topic_id, anchor_seq,
                              anchor_event_id, label, summary, metadata, children, child_leaves, is_unit, events, leaves,
                              units, key_at, key_event_id, first_at, last_at)
SELECT $1, i.rendering_id, $2, i.node_id, i.node_type, i.level, i.topic_id, i.anchor_seq, i.anchor_event_id, i.label,
       i.summary, i.metadata, i.children::bytea[], i.child_leaves::bytea[], i.is_unit, i.events, i.leaves, i.units,
       to_timestamp(i.key_us / 1000000) + i.key_us % 1000000 * interval '1 microsecond', i.key_event_id,
       to_timestamp(i.first_us / 1000000) + i.first_us % 1000000 * interval '1 microsecond',
       to_timestamp(i.last_us / 1000000) + i.last_us % 1000000 * interval '1 microsecond'
FROM ROWS FROM (
         unnest($3::text::bytea[], $4::text::bytea[], $5::text::text[], $6::text::smallint[], $7::text::text[],
                $8::text::bigint[], $9::text::text[], $10::text::text[], $11::text::text[], $13::text::text[],
                $14::text::text[], $15::text::boolean[], $16::text::integer[], $17::text::integer[],
                $18::text::integer[], $19::text::bigint[], $20::text::text[], $21::text::bigint[], $22::text::bigint[]),
         jsonb_array_elements($12::text::jsonb)) WITH ORDINALITY
     AS i (rendering_id, node_id, node_type, level, topic_id, anchor_seq, anchor_event_id, label, summary, children,
           child_leaves, is_unit, events, leaves, units, key_us, key_event_id, first_us, last_us, metadata, position)
ORDER BY i.position
ON CONFLICT DO NOTHING;

-- name: write_topics
INSERT INTO myria.topics (tenant_id, topic_id, scope_id, node_type, level, anchor_seq, anchor_event_id, anchor_at)
SELECT $1, i.topic_id, $2, i.node_type, i.level, i.anchor_seq, i.anchor_event_id, e.occurred_at
FROM unnest($3::text::text[], $4::text::text[], $5::text::smallint[], $6::text::bigint[], $7::text::text[]) WITH ORDINALITY
     AS i (topic_id, node_type, level, anchor_seq, anchor_event_id, position)
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = i.anchor_seq
ORDER BY i.position
ON CONFLICT DO NOTHING;

-- name: write_block
INSERT INTO myria.search_blocks (tenant_id, rendering_id, analyzer_version, scope_id, block, leaf_ids)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT DO NOTHING;
