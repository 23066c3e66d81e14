-- name: transaction_bound
-- No transaction of this cluster has this number yet, as far as this snapshot of the database knows.
SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint;

-- name: scopes
-- Every scope with the members its rows name.
SELECT c.scope_id, c.scope_key, c.participants,
       ARRAY(SELECT m.participant FROM myria.scope_members m
             WHERE m.tenant_id = $1 AND m.scope_id = c.scope_id AND m.participant = ANY (c.participants)
             ORDER BY m.participant COLLATE "C") AS members
FROM myria.scopes c
WHERE c.tenant_id = $1
ORDER BY c.scope_id;

-- name: stray_members
-- Member rows whose scope does not list them: they would show a scope to somebody outside it.
SELECT m.scope_id, m.participant
FROM myria.scope_members m
JOIN myria.scopes c ON c.tenant_id = $1 AND c.scope_id = m.scope_id
WHERE m.tenant_id = $1 AND NOT m.participant = ANY (c.participants)
ORDER BY m.scope_id, m.participant;

-- name: events
-- The whole log, without payloads.
SELECT e.event_seq, e.event_id, e.xid::text::bigint AS xid, e.channel, e.source_event_key, e.dedupe_key,
       EXISTS (SELECT FROM myria.scopes c WHERE c.tenant_id = $1 AND c.scope_id = e.scope_id) AS has_scope
FROM myria.events e
WHERE e.tenant_id = $1
ORDER BY e.event_seq;

-- name: nodes
-- Every identity with the events its refs resolve to (null where one does not), in the order of the refs.
SELECT n.node_id, n.scope_id, n.node_type, c.participants, n.event_seqs, n.weights,
       r.event_ids, r.scope_ids, r.internal, r.times
FROM myria.nodes n
LEFT JOIN myria.scopes c ON c.tenant_id = $1 AND c.scope_id = n.scope_id
CROSS JOIN LATERAL (
    SELECT array_agg(e.event_id ORDER BY ref.position) AS event_ids,
           array_agg(e.scope_id ORDER BY ref.position) AS scope_ids,
           array_agg(e.internal ORDER BY ref.position) AS internal,
           array_agg(e.occurred_at ORDER BY ref.position) AS times
    FROM unnest(n.event_seqs) WITH ORDINALITY AS ref (event_seq, position)
    LEFT JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = ref.event_seq
) r
WHERE n.tenant_id = $1;

-- name: renderings
-- Every rendering with its identity's row, the number of its children that exist, its topic, its anchor event, and
-- for a leaf the first and last of its events.
SELECT r.rendering_id, r.scope_id, r.node_id, r.node_type, r.level, r.topic_id, r.anchor_seq, r.anchor_event_id,
       r.label, r.summary, r.metadata::text AS metadata, r.children, r.child_leaves, r.events, r.key_at,
       r.key_event_id, r.first_at, r.last_at, c.participants,
       n.node_type AS identity_type, n.scope_id AS identity_scope, n.event_seqs,
       (SELECT count(*) FROM unnest(r.children) AS child
        WHERE EXISTS (SELECT FROM myria.renderings x WHERE x.tenant_id = $1 AND x.rendering_id = child)) AS children_found,
       EXISTS (SELECT FROM myria.topics t WHERE t.tenant_id = $1 AND t.topic_id = r.topic_id) AS has_topic,
       EXISTS (SELECT FROM myria.erased_renderings x
               WHERE x.tenant_id = $1 AND x.rendering_id = r.rendering_id AND x.erased_at IS NOT NULL) AS is_erased,
       a.event_id AS anchor_found, a.scope_id AS anchor_scope,
       f.event_id AS first_event_id, f.occurred_at AS first_occurred, l.occurred_at AS last_occurred
FROM myria.renderings r
LEFT JOIN myria.scopes c ON c.tenant_id = $1 AND c.scope_id = r.scope_id
LEFT JOIN myria.nodes n ON n.tenant_id = $1 AND n.node_id = r.node_id
LEFT JOIN myria.events a ON a.tenant_id = $1 AND a.event_seq = r.anchor_seq
LEFT JOIN myria.events f ON f.tenant_id = $1 AND f.event_seq = n.event_seqs[1]
LEFT JOIN myria.events l ON l.tenant_id = $1 AND l.event_seq = n.event_seqs[cardinality(n.event_seqs)]
WHERE r.tenant_id = $1;

-- name: snapshots
SELECT s.snapshot_id, s.number, s.parent_snapshot_id, s.status, s.cutoff, s.tail_xid::text::bigint AS tail_xid,
       s.lineage, s.planner_settings, s.activated_at IS NOT NULL AS was_active, b.status AS build_status
FROM myria.snapshots s
LEFT JOIN myria.builds b ON b.tenant_id = $1 AND b.build_id = s.build_id
WHERE s.tenant_id = $1
ORDER BY s.number NULLS LAST, s.created_at, s.snapshot_id;

-- name: pointer
SELECT a.snapshot_id,
       (SELECT m.to_snapshot_id FROM myria.pointer_moves m WHERE m.tenant_id = $1 ORDER BY m.move_id DESC LIMIT 1) AS moved_to
FROM (SELECT 1) one
LEFT JOIN myria.active_snapshots a ON a.tenant_id = $1;

-- name: pointer_moves
SELECT move_id, from_snapshot_id, to_snapshot_id FROM myria.pointer_moves WHERE tenant_id = $1 ORDER BY move_id;

-- name: before_the_tail_bound
-- Events past a cutoff that an index scan bounded by tail_xid would not see.
SELECT event_seq FROM myria.events
WHERE tenant_id = $1 AND event_seq > $2 AND xid::text::bigint < $3
ORDER BY event_seq LIMIT 20;

-- name: scope_roots
-- Every root row with what it points at, and which of its search blocks exist.
SELECT x.scope_id, x.number, x.root_rendering_id, r.scope_id AS rendering_scope,
       EXISTS (SELECT FROM myria.scopes c WHERE c.tenant_id = $1 AND c.scope_id = x.scope_id) AS has_scope
FROM myria.scope_roots x
LEFT JOIN myria.renderings r ON r.tenant_id = $1 AND r.rendering_id = x.root_rendering_id
WHERE x.tenant_id = $1
ORDER BY x.scope_id, x.number;

-- name: snapshot_scopes
-- One page of all scopes: what a snapshot shows of each, null where it shows nothing.
SELECT c.scope_id, c.participants, root.root_rendering_id, root.blocks
FROM myria.scopes c
LEFT JOIN LATERAL myria.root_within($1, c.scope_id, $2::int8multirange) root ON true
WHERE c.tenant_id = $1 AND c.scope_id > $3
ORDER BY c.scope_id
LIMIT $4;

-- name: eligible_seqs
-- What a snapshot must hold of a scope: its events up to the cutoff that are neither internal nor were withdrawn at the
-- cutoff, in the order of the scope.
SELECT e.event_seq FROM myria.events e
WHERE e.tenant_id = $1 AND e.scope_id = $2 AND e.event_seq <= $3 AND NOT e.internal
  AND NOT myria.is_withdrawn($1, e.event_seq, $3)
ORDER BY e.occurred_at, e.event_seq;

-- name: structure
-- A rendering and what is beneath it down to a depth, as the tree's structure needs them. A child is below its parent, so
-- this ends.
WITH RECURSIVE tree AS (
    SELECT r.rendering_id, r.children, r.level, 0 AS depth FROM myria.renderings r
    WHERE r.tenant_id = $1 AND r.rendering_id = $2
    UNION ALL
    SELECT r.rendering_id, r.children, r.level, t.depth + 1
    FROM tree t
    CROSS JOIN LATERAL unnest(t.children) AS child (rendering_id)
    JOIN myria.renderings r ON r.tenant_id = $1 AND r.rendering_id = child.rendering_id
    WHERE t.depth < $3 AND (r.level < t.level OR t.depth = 0)
)
SELECT r.rendering_id, r.scope_id, r.node_id, r.node_type, r.level, r.anchor_seq, r.children, r.child_leaves, r.is_unit,
       r.events, r.leaves, r.units, r.key_at, r.key_event_id, r.first_at, r.last_at, n.event_seqs
FROM (SELECT DISTINCT rendering_id FROM tree) t
JOIN myria.renderings r ON r.tenant_id = $1 AND r.rendering_id = t.rendering_id
LEFT JOIN myria.nodes n ON n.tenant_id = $1 AND n.node_id = r.node_id;

-- name: block
-- A search block and its leaves; NULL where there is one of another version only.
SELECT CASE WHEN analyzer_version = $3 THEN block END AS block, leaf_ids
FROM myria.search_blocks
WHERE tenant_id = $1 AND rendering_id = $2
ORDER BY analyzer_version = $3 DESC
LIMIT 1;

-- name: block_events
SELECT e.event_seq, e.event_id, e.occurred_at, e.utc_offset, e.channel, e.type, e.context_id, e.payload::text AS payload,
       e.topic_hints::text AS topic_hints
FROM myria.events e
WHERE e.tenant_id = $1 AND e.event_seq = ANY ($2::bigint[])
ORDER BY e.occurred_at, e.event_seq;

-- name: unreachable_renderings
-- Renderings that no root row leads to: leftovers of killed builds and of collected snapshots. Not shown to anybody.
WITH RECURSIVE reached AS (
    SELECT DISTINCT x.root_rendering_id AS rendering_id FROM myria.scope_roots x WHERE x.tenant_id = $1
    UNION
    SELECT child.rendering_id
    FROM reached
    JOIN myria.renderings r ON r.tenant_id = $1 AND r.rendering_id = reached.rendering_id
    CROSS JOIN LATERAL unnest(r.children) AS child (rendering_id)
)
SELECT count(*) FROM myria.renderings r
WHERE r.tenant_id = $1 AND NOT EXISTS (SELECT FROM reached WHERE reached.rendering_id = r.rendering_id);

-- name: has_plans
-- Since when the tenant has stored plans of a language model, if it has.
SELECT llm_planned_at FROM myria.tenants WHERE tenant_id = $1;

-- name: count
-- How many rows of the tenant a table has.
SELECT myria.count_rows($1, $2);

-- name: differs_from_log
SELECT is_kept, fields::text AS fields FROM myria.differs_from_log($1, $2);

-- name: erased_seqs
-- Events of a scope that were erased, or are being erased: search blocks may lack them.
SELECT x.event_seq FROM myria.erased x WHERE x.tenant_id = $1 AND x.scope_id = $2 ORDER BY x.event_seq;

-- name: subject_nodes
-- Every node of subjects, with the scope that it is of.
SELECT n.*, n.is_subject AS is_unit, n.subjects AS units, c.participants
FROM myria.subject_nodes n
LEFT JOIN myria.scopes c ON c.tenant_id = $1 AND c.scope_id = n.scope_id
WHERE n.tenant_id = $1;

-- name: subject_roots
-- Every root row of subjects with what it points at.
SELECT x.scope_id, x.number, x.since, x.root_rendering_id, n.scope_id AS rendering_scope,
       EXISTS (SELECT FROM myria.scopes c WHERE c.tenant_id = $1 AND c.scope_id = x.scope_id) AS has_scope
FROM myria.subject_roots x
LEFT JOIN myria.subject_nodes n ON n.tenant_id = $1 AND n.rendering_id = x.root_rendering_id
WHERE x.tenant_id = $1
ORDER BY x.scope_id, x.number;

-- name: subject_records
-- The scopes and numbers under which there are records of who holds a key.
SELECT DISTINCT h.scope_id, h.number FROM myria.subject_holders h WHERE h.tenant_id = $1 ORDER BY h.scope_id, h.number;

-- name: subjects_beneath
-- Everything that a root of subjects reaches, once; without children where it is a leaf, or missing.
WITH RECURSIVE reached AS (
    SELECT $3::bytea AS rendering_id
    UNION
    SELECT child
    FROM reached u
    CROSS JOIN LATERAL (
        SELECT n.children FROM myria.subject_nodes n
        WHERE n.tenant_id = $1 AND n.scope_id = $2 AND n.rendering_id = u.rendering_id OFFSET 0) n
    CROSS JOIN LATERAL unnest(n.children) AS child
)
SELECT u.rendering_id, n.children
FROM reached u
LEFT JOIN myria.subject_nodes n ON n.tenant_id = $1 AND n.scope_id = $2 AND n.rendering_id = u.rendering_id;

-- name: holders_within
-- Of each key of a scope the newest record in a lineage, not older than the number $4.
SELECT DISTINCT ON (h.key) h.key, h.holders, h.subject
FROM myria.subject_holders h
WHERE h.tenant_id = $1 AND h.scope_id = $2 AND h.number::bigint <@ $3::int8multirange AND h.number >= $4
ORDER BY h.key, h.number DESC;

-- name: vectors_differ
-- Vectors that fit no event, or no text, or none of their model; and events that have none though they should.
SELECT v.model, v.event_seq,
       CASE WHEN e.event_seq IS NULL THEN 'is of an event that is not in the log'
            WHEN e.internal THEN 'is of an internal event'
            WHEN x.event_seq IS NOT NULL THEN 'is of an event that was erased'
            WHEN e.scope_id <> v.scope_id THEN 'is kept under another scope than its event''s'
            ELSE 'is not kept' END AS what
FROM myria.event_vectors v
LEFT JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = v.event_seq
LEFT JOIN myria.erased x ON x.tenant_id = $1 AND x.event_seq = v.event_seq AND x.erased_at IS NOT NULL
WHERE v.tenant_id = $1
  AND (e.event_seq IS NULL OR e.internal OR x.event_seq IS NOT NULL OR e.scope_id <> v.scope_id
       OR (v.digest IS NOT NULL AND NOT EXISTS (
           SELECT FROM myria.text_vectors t WHERE t.tenant_id = $1 AND t.model = v.model AND t.digest = v.digest)))
UNION ALL
SELECT p.model, e.event_seq, 'is missing, but vectors are said to be complete up to there'
FROM myria.vector_progress p
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq <= p.done_seq AND NOT e.internal
WHERE p.tenant_id = $1
  AND NOT EXISTS (SELECT FROM myria.event_vectors v
                  WHERE v.tenant_id = $1 AND v.model = p.model AND v.event_seq = e.event_seq)
  AND NOT EXISTS (SELECT FROM myria.erased x
                  WHERE x.tenant_id = $1 AND x.event_seq = e.event_seq AND x.erased_at IS NOT NULL)
ORDER BY 1, 2;

-- name: texts_of_vectors
-- By model: texts that no event says, and vectors with other dimensions than most of the model's have.
WITH sizes AS (
    SELECT t.model, octet_length(t.vector) AS size, count(*) AS texts FROM myria.text_vectors t
    WHERE t.tenant_id = $1 GROUP BY 1, 2
), usual AS (
    SELECT DISTINCT ON (model) model, size FROM sizes ORDER BY model, texts DESC, size
)
SELECT u.model, u.size,
       (SELECT coalesce(sum(s.texts), 0) FROM sizes s WHERE s.model = u.model AND s.size <> u.size)::bigint AS others,
       (SELECT count(*) FROM myria.text_vectors t
        WHERE t.tenant_id = $1 AND t.model = u.model
          AND NOT EXISTS (SELECT FROM myria.event_vectors v
                          WHERE v.tenant_id = $1 AND v.model = t.model AND v.digest = t.digest)) AS unsaid
FROM usual u
ORDER BY u.model;

-- name: vector_digests
-- The digest of each event's text beside what it is made of.
SELECT v.model, v.event_seq, v.digest, e.payload
FROM myria.event_vectors v
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = v.event_seq
WHERE v.tenant_id = $1 AND v.digest IS NOT NULL
ORDER BY v.model, v.event_seq;
