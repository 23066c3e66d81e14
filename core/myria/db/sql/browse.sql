-- name: snapshot
-- One snapshot by its id or its number; the active one when neither is given.
SELECT s.snapshot_id, s.status, s.cutoff, s.lineage
FROM myria.snapshots s
WHERE s.tenant_id = $1
  AND CASE WHEN $2::text IS NOT NULL THEN s.snapshot_id = $2
           WHEN $3::integer IS NOT NULL THEN s.number = $3
           ELSE s.snapshot_id = (SELECT a.snapshot_id FROM myria.active_snapshots a WHERE a.tenant_id = $1) END;

-- name: roots
-- One page of a snapshot's scopes with their roots, those of some participants only when any are given.
SELECT c.scope_id, c.participants, root.root_rendering_id
FROM myria.scopes c
CROSS JOIN LATERAL myria.root_within($1, c.scope_id, $2::int8multirange) root
WHERE root.root_rendering_id IS NOT NULL AND c.tenant_id = $1 AND c.scope_id > $3 AND c.participants @> $4::text[]
ORDER BY c.scope_id
LIMIT $5;

-- name: differing_roots
-- One page of the scopes whose roots, of time or of subjects, may differ between two lineages; those of time are given, null
-- where a lineage has none.
WITH alone AS (
    SELECT ($2::int8multirange + $3::int8multirange) - ($2::int8multirange * $3::int8multirange) AS numbers
), touched AS (
    SELECT x.scope_id FROM myria.scope_roots x, alone
    WHERE x.tenant_id = $1 AND x.scope_id > $4 AND x.number::bigint <@ alone.numbers
    UNION
    SELECT x.scope_id FROM myria.subject_roots x, alone
    WHERE x.tenant_id = $1 AND x.scope_id > $4 AND x.number::bigint <@ alone.numbers
    ORDER BY scope_id LIMIT $5
)
SELECT t.scope_id, c.participants, a.root_rendering_id AS before, b.root_rendering_id AS after
FROM touched t
JOIN myria.scopes c ON c.tenant_id = $1 AND c.scope_id = t.scope_id
LEFT JOIN LATERAL myria.root_within($1, t.scope_id, $2::int8multirange) a ON true
LEFT JOIN LATERAL myria.root_within($1, t.scope_id, $3::int8multirange) b ON true
ORDER BY t.scope_id;

-- name: renderings
-- Renderings and subjects, with the refs of those that are leaves; in any order.
SELECT r.scope_id, r.rendering_id, r.node_id, r.node_type, r.level, r.topic_id, r.label, r.summary, r.children, r.events,
       r.leaves, r.units, r.first_at, r.last_at, n.event_seqs
FROM (
    SELECT t.scope_id, t.rendering_id, t.node_id, t.node_type, t.level, t.topic_id, t.label, t.summary, t.children, t.events,
           t.leaves, t.units, t.first_at, t.last_at
    FROM myria.renderings t
    WHERE t.tenant_id = $1 AND t.rendering_id = ANY ($2::bytea[])
    UNION ALL
    SELECT s.scope_id, s.rendering_id, s.node_id, 'subject', s.level, s.topic_id, s.label, s.summary, s.children, s.events,
           s.leaves, s.subjects, s.first_at, s.last_at
    FROM myria.subject_nodes s
    WHERE s.tenant_id = $1 AND s.rendering_id = ANY ($2::bytea[])
) r
LEFT JOIN myria.nodes n ON n.tenant_id = $1 AND n.node_id = r.node_id AND r.node_type = 'leaf_topic';

-- name: event_ids
SELECT event_seq, event_id FROM myria.events WHERE tenant_id = $1 AND event_seq = ANY ($2::bigint[]);

-- name: events
-- One page of the log past a number, newest first, or oldest first where $12 says so, by what a person may filter it;
-- without events $3, without what is withdrawn, and without withdrawals.
SELECT e.event_seq, e.event_id, e.occurred_at, e.utc_offset, e.ingested_at, e.channel, s.participants,
       e.source_event_key, e.type, e.context_id, e.internal, e.payload::text AS payload, e.topic_hints::text AS topic_hints
FROM myria.events e
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = e.scope_id
WHERE e.tenant_id = $1 AND e.event_seq > $2 AND e.event_seq <> ALL ($3::bigint[])
  AND s.participants @> $4::text[]
  AND ($5::text IS NULL OR e.channel = $5)
  AND ($6::text IS NULL OR e.type = $6)
  AND ($7::text IS NULL OR e.context_id = $7)
  AND ($8::timestamptz IS NULL OR e.occurred_at >= $8)
  AND ($9::timestamptz IS NULL OR e.occurred_at < $9)
  AND ($10::boolean IS NULL OR e.internal = $10)
  AND e.type IS DISTINCT FROM 'myria.withdrawal'
  AND NOT coalesce((SELECT x.reason <> 'restored' FROM myria.withdrawn x
                     WHERE x.tenant_id = $1 AND x.event_seq = e.event_seq
                     ORDER BY x.by_event_seq DESC LIMIT 1), false)
  AND e.event_seq NOT IN (SELECT d.event_seq FROM myria.ended_events($1, now()) d)
-- In a plan made for these arguments the first expression is constant or the column itself, so an index gives either order.
ORDER BY CASE WHEN $12 THEN e.event_seq END, e.event_seq DESC
LIMIT $11;
