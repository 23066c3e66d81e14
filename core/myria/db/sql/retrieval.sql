-- name: snapshot_view
-- The active snapshot, once per request, and what this transaction can see of the tail: newest_seq bounds its length.
-- newest_xid is that of a visible event: its commit is on disk, so no crash makes PostgreSQL give out an id up to it
-- again. tenant_since tells a tenant from one of the same name that was deleted. $2: when it is asked, NULL for now.
-- memberships: in how many scopes each driver of $3 is, in their order.
SELECT a.snapshot_id, s.cutoff, s.tail_xid::text::bigint AS tail_xid, pg_current_snapshot()::text AS visible, now() AS clock,
       newest.xid::text::bigint AS newest_xid, newest.event_seq AS newest_seq, t.created_at AS tenant_since,
       (SELECT count(*) FROM myria.withdrawn w WHERE w.tenant_id = $1 AND w.by_event_seq > built.cutoff) AS withdrawn,
       coalesce((SELECT w.by_event_seq FROM myria.withdrawn w WHERE w.tenant_id = $1
                 ORDER BY w.by_event_seq LIMIT 1) <= built.cutoff, false) AS withdrawn_before,
       coalesce((SELECT k.ends_at FROM myria.note_looks k WHERE k.tenant_id = $1 AND k.ends_at IS NOT NULL
                 ORDER BY k.ends_at LIMIT 1) <= CASE WHEN $2::timestamptz IS NULL THEN now() ELSE $2 END, false)
           AS notes_may_have_ended,
       (SELECT r.scope_id FROM myria.subject_roots r WHERE r.tenant_id = $1
        ORDER BY r.scope_id LIMIT 1) IS NOT NULL AS has_subjects,
       ARRAY(SELECT (SELECT count(*) FROM myria.scope_members m
                     WHERE m.tenant_id = $1 AND m.participant = driver.participant)
             FROM unnest($3::text[]) WITH ORDINALITY AS driver (participant, place) ORDER BY driver.place) AS memberships
FROM (SELECT) AS request
LEFT JOIN myria.tenants t ON t.tenant_id = $1
LEFT JOIN LATERAL (
    SELECT e.xid, e.event_seq FROM myria.events e WHERE e.tenant_id = $1 ORDER BY e.event_seq DESC LIMIT 1
) newest ON true
LEFT JOIN myria.active_snapshots a ON a.tenant_id = $1
LEFT JOIN myria.snapshots s ON s.tenant_id = $1 AND s.snapshot_id = a.snapshot_id
CROSS JOIN LATERAL (SELECT CASE WHEN s.cutoff IS NULL THEN 0 ELSE s.cutoff END AS cutoff) built;

-- name: snapshot_of_cursor
-- The snapshot a cursor names, while it is kept.
SELECT s.snapshot_id, s.cutoff, s.tail_xid::text::bigint AS tail_xid,
       (SELECT count(*) FROM myria.withdrawn w WHERE w.tenant_id = $1 AND w.by_event_seq > s.cutoff) AS withdrawn,
       coalesce((SELECT w.by_event_seq FROM myria.withdrawn w WHERE w.tenant_id = $1
                 ORDER BY w.by_event_seq LIMIT 1) <= s.cutoff, false) AS withdrawn_before
FROM myria.snapshots s
WHERE s.tenant_id = $1 AND s.snapshot_id = $2 AND s.status IN ('active', 'archived');

-- name: withdrawn
-- What withdrawals past a number say, in their order, and whether each event was withdrawn at that number.
SELECT w.event_seq, w.scope_id, w.reason, w.superseded_by, w.xid::text::bigint AS xid, e.occurred_at,
       coalesce((SELECT x.reason <> 'restored' FROM myria.withdrawn x
                 WHERE x.tenant_id = $1 AND x.event_seq = w.event_seq AND x.by_event_seq <= $2
                 ORDER BY x.by_event_seq DESC LIMIT 1), false) AS was_withdrawn
FROM myria.withdrawn w
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = w.event_seq
WHERE w.tenant_id = $1 AND w.by_event_seq > $2
ORDER BY w.by_event_seq;

-- name: withdrawn_of_scope
-- Events of a scope up to a number that are withdrawn now, by a withdrawal past it, in order.
SELECT newest.event_seq, e.occurred_at
FROM (SELECT DISTINCT ON (w.event_seq) w.event_seq, w.reason
      FROM myria.withdrawn w
      WHERE w.tenant_id = $1 AND w.scope_id = $2 AND w.by_event_seq > $3
      ORDER BY w.event_seq, w.by_event_seq DESC) newest
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = newest.event_seq
WHERE newest.event_seq <= $3 AND newest.reason <> 'restored'
ORDER BY newest.event_seq;

-- name: ended
-- The events of notes that have ended, and that maintenance has not withdrawn yet; $2 as in snapshot_view. (CASE: under row-level
-- security a coalesce is no index condition.)
SELECT d.event_seq, d.scope_id, d.occurred_at FROM myria.ended_events($1, CASE WHEN $2::timestamptz IS NULL THEN now() ELSE $2 END) d;

-- name: count_withdrawn
-- For a page of a time before the first snapshot.
SELECT count(*) FROM myria.withdrawn w WHERE w.tenant_id = $1 AND w.by_event_seq > 0;

-- name: withdrawn_internal
-- The internal events of scopes that are withdrawn: no tree ever held them, so all of them are asked for. (OFFSET 0 here
-- and below: look each up by its key.)
SELECT named.event_seq
FROM unnest($2::bigint[]) AS visible
CROSS JOIN LATERAL (
    SELECT DISTINCT w.event_seq FROM myria.withdrawn w WHERE w.tenant_id = $1 AND w.scope_id = visible OFFSET 0
) named
CROSS JOIN LATERAL (
    SELECT w.reason FROM myria.withdrawn w
    WHERE w.tenant_id = $1 AND w.event_seq = named.event_seq
    ORDER BY w.by_event_seq DESC LIMIT 1
) newest
CROSS JOIN LATERAL (
    SELECT x.internal FROM myria.events x WHERE x.tenant_id = $1 AND x.event_seq = named.event_seq OFFSET 0
) e
WHERE newest.reason <> ALL ($3::text[]) AND e.internal;

-- name: superseded
-- The events of scopes that were superseded up to the snapshot's cutoff ($3) and still are: its trees do not hold them.
SELECT named.event_seq
FROM unnest($2::bigint[]) AS visible
CROSS JOIN LATERAL (
    SELECT DISTINCT w.event_seq FROM myria.withdrawn w
    WHERE w.tenant_id = $1 AND w.scope_id = visible AND w.by_event_seq <= $3 OFFSET 0
) named
CROSS JOIN LATERAL (
    SELECT w.reason, w.by_event_seq FROM myria.withdrawn w
    WHERE w.tenant_id = $1 AND w.event_seq = named.event_seq
    ORDER BY w.by_event_seq DESC LIMIT 1
) newest
WHERE newest.reason = 'superseded' AND newest.by_event_seq <= $3;

-- name: replaced
-- The events of scopes that were superseded at a cutoff ($3), each with what replaced it: the newest $4 of them.
SELECT named.event_seq, newest.superseded_by
FROM unnest($2::bigint[]) AS visible
CROSS JOIN LATERAL (
    SELECT DISTINCT w.event_seq FROM myria.withdrawn w
    WHERE w.tenant_id = $1 AND w.scope_id = visible AND w.by_event_seq <= $3 OFFSET 0
) named
CROSS JOIN LATERAL (
    SELECT w.reason, w.superseded_by FROM myria.withdrawn w
    WHERE w.tenant_id = $1 AND w.event_seq = named.event_seq AND w.by_event_seq <= $3
    ORDER BY w.by_event_seq DESC LIMIT 1
) newest
WHERE newest.reason = 'superseded' AND newest.superseded_by IS NOT NULL
ORDER BY named.event_seq DESC LIMIT $4;

-- name: successors
-- What replaced events that are superseded now, and whose that is.
SELECT named.event_seq, successor.event_id, successor.event_seq AS successor_seq, s.participants
FROM unnest($2::bigint[]) AS named (event_seq)
CROSS JOIN LATERAL (
    SELECT w.reason, w.superseded_by FROM myria.withdrawn w
    WHERE w.tenant_id = $1 AND w.event_seq = named.event_seq
    ORDER BY w.by_event_seq DESC LIMIT 1
) newest
LEFT JOIN myria.events successor ON successor.tenant_id = $1 AND successor.event_seq = newest.superseded_by
LEFT JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = successor.scope_id
WHERE newest.reason = 'superseded';

-- name: replaced_by
-- What an event replaced, and whose that is: the newest hundred.
SELECT e.event_id, e.occurred_at, e.utc_offset, e.payload, s.participants
FROM (
    SELECT r.event_seq FROM myria.replaced_events r
    WHERE r.tenant_id = $1 AND r.superseded_by = $2
    ORDER BY r.event_seq DESC LIMIT 100
) old
JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = old.event_seq
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = e.scope_id
ORDER BY old.event_seq DESC;

-- name: older
-- What each of some events replaced, and what that replaced in its turn, at most $3 of each, the nearest. (OFFSET 0: look
-- each up by its key.)
SELECT newer.event_seq AS newer_seq, older.event_seq
FROM unnest($2::bigint[]) AS newer (event_seq)
CROSS JOIN LATERAL (
    WITH RECURSIVE chain AS (
        SELECT newer.event_seq
        UNION
        SELECT old.event_seq
        FROM chain
        CROSS JOIN LATERAL (
            SELECT r.event_seq FROM myria.replaced_events r
            WHERE r.tenant_id = $1 AND r.superseded_by = chain.event_seq OFFSET 0
        ) old
    )
    SELECT c.event_seq FROM chain c WHERE c.event_seq <> newer.event_seq LIMIT $3
) older
ORDER BY newer.event_seq, older.event_seq DESC;

-- name: driver
-- Of the participants who ask, the one with the fewest scopes, and how many these are: every visible scope is one of
-- them, and scopes are only ever added, so as long as the number is the same, the visible scopes are.
SELECT fewest.p AS participant,
       (SELECT count(*) FROM myria.scope_members m WHERE m.tenant_id = $1 AND m.participant = fewest.p) AS memberships
FROM (
    SELECT p FROM unnest($2::text[]) AS p
    ORDER BY (SELECT count(*) FROM (
        SELECT FROM myria.scope_members m WHERE m.tenant_id = $1 AND m.participant = p LIMIT 1025) few), p COLLATE "C"
    LIMIT 1
) fewest;

-- name: exact_tree
-- The one scope of a participant set, by its key, with its newest root within the lineage of the snapshot.
SELECT s.scope_id, root.number, root.root_rendering_id, root.blocks
FROM myria.scopes s
LEFT JOIN LATERAL (
    SELECT x.number, x.root_rendering_id, x.blocks
    FROM myria.scope_roots x
    WHERE x.tenant_id = $1 AND x.scope_id = s.scope_id
      AND x.number::bigint <@ (SELECT lineage FROM myria.snapshots WHERE tenant_id = $1 AND snapshot_id = $3)
    ORDER BY x.number DESC
    LIMIT 1
) root ON true
WHERE s.tenant_id = $1 AND s.scope_key = $2;

-- name: visible_trees
-- A page of the scopes everyone who asks belongs to, without those that are known already ($7), each with its newest
-- root within the lineage of the snapshot: masked before anything is ranked. $4 is the driver, $5 the last
-- scope of the page before.
WITH snapshot AS (
    SELECT lineage FROM myria.snapshots WHERE tenant_id = $1 AND snapshot_id = $3
)
SELECT visible.scope_id, s.participants, root.number, root.root_rendering_id, root.blocks
FROM (
    SELECT m.scope_id
    FROM myria.scope_members m
    WHERE m.tenant_id = $1
      AND m.participant = $4
      AND m.scope_id > $5
      AND m.scope_id <> ALL ($7::bigint[])
      AND NOT EXISTS (
          SELECT FROM unnest($2::text[]) AS other
          WHERE other <> $4 AND NOT EXISTS (
              SELECT FROM myria.scope_members x
              WHERE x.tenant_id = $1 AND x.participant = other AND x.scope_id = m.scope_id))
    ORDER BY m.scope_id
    LIMIT $6
) visible
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = visible.scope_id
LEFT JOIN LATERAL (
    SELECT x.number, x.root_rendering_id, x.blocks
    FROM myria.scope_roots x
    WHERE x.tenant_id = $1 AND x.scope_id = visible.scope_id AND x.number::bigint <@ (SELECT lineage FROM snapshot)
    ORDER BY x.number DESC
    LIMIT 1
) root ON true
ORDER BY visible.scope_id;

-- name: changed_trees
-- Of scopes known with the number of their root (0 for none), those whose root in the snapshot is another.
WITH snapshot AS (
    SELECT lineage FROM myria.snapshots WHERE tenant_id = $1 AND snapshot_id = $4
)
SELECT known.scope_id, root.number, root.root_rendering_id, root.blocks
FROM unnest($2::bigint[], $3::integer[]) AS known (scope_id, number)
LEFT JOIN LATERAL (
    SELECT x.number, x.root_rendering_id, x.blocks
    FROM myria.scope_roots x
    WHERE x.tenant_id = $1 AND x.scope_id = known.scope_id AND x.number::bigint <@ (SELECT lineage FROM snapshot)
    ORDER BY x.number DESC
    LIMIT 1
) root ON true
WHERE coalesce(root.number, 0) <> known.number;

-- name: blocks
SELECT b.rendering_id, b.block
FROM unnest($2::bytea[]) AS wanted
JOIN myria.search_blocks b ON b.tenant_id = $1 AND b.rendering_id = wanted AND b.analyzer_version = $3;

-- name: renderings
SELECT r.rendering_id, r.scope_id, r.node_id, r.node_type, r.level, r.topic_id, r.label, r.summary, r.metadata, r.children,
       r.events, r.leaves, r.first_at, r.last_at
FROM unnest($2::bytea[]) AS wanted
JOIN myria.renderings r ON r.tenant_id = $1 AND r.rendering_id = wanted;

-- name: above_blocks
-- The nodes between a scope's root and its search blocks, each with its parent.
WITH RECURSIVE upper AS (
    SELECT r.rendering_id, NULL::bytea AS parent_id, r.children
    FROM myria.renderings r WHERE r.tenant_id = $1 AND r.rendering_id = $2
    UNION ALL
    SELECT r.rendering_id, u.rendering_id, r.children
    FROM upper u
    CROSS JOIN LATERAL unnest(u.children) AS child
    JOIN myria.renderings r ON r.tenant_id = $1 AND r.rendering_id = child
    WHERE NOT u.rendering_id = ANY ($3::bytea[])
)
SELECT rendering_id, parent_id FROM upper;

-- name: expected
-- An event that a question expected, with the reason of its newest withdrawal.
SELECT e.event_seq, e.scope_id, e.internal, e.channel, e.type, e.context_id, e.occurred_at,
       (SELECT x.reason FROM myria.withdrawn x WHERE x.tenant_id = $1 AND x.event_seq = e.event_seq
        ORDER BY x.by_event_seq DESC LIMIT 1) AS reason
FROM myria.events e WHERE e.tenant_id = $1 AND e.event_id = $2;

-- name: topic
-- Of time or a subject, which has the prefix of its paths, the same in every snapshot. In one statement: who may not see
-- a topic learns nothing from how many there are.
SELECT t.topic_id, t.scope_id, t.node_type, t.level, t.anchor_seq, s.participants, NULL AS prefix
FROM myria.topics t
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = t.scope_id
WHERE t.tenant_id = $1 AND t.topic_id = $2
UNION ALL
SELECT $2, n.scope_id, 'subject', n.level, n.anchor_seq, s.participants, n.prefix
FROM (
    SELECT x.scope_id, x.level, x.anchor_seq, x.metadata->>'prefix' AS prefix FROM myria.subject_nodes x
    WHERE x.tenant_id = $1 AND x.topic_id = $2 AND x.is_subject LIMIT 1) n
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = n.scope_id;

-- name: node
-- Likewise, by the id of a node. Any rendering tells its scope and one member event.
(SELECT r.scope_id, r.node_type, r.level, r.anchor_seq, s.participants, NULL AS prefix
 FROM myria.renderings r
 JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = r.scope_id
 WHERE r.tenant_id = $1 AND r.node_id = $2
 LIMIT 1)
UNION ALL
(SELECT n.scope_id, 'subject', n.level, n.anchor_seq, s.participants, n.metadata->>'prefix'
 FROM myria.subject_nodes n
 JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = n.scope_id
 WHERE n.tenant_id = $1 AND n.node_id = $2 AND n.is_subject
 LIMIT 1);

-- name: newest_moment
-- The newest visible event in time that is not ahead of this server's clock (null where all are), from which topics
-- count as active or dormant; nobody else's events matter.
SELECT max(newest.occurred_at)
FROM unnest($2::bigint[]) AS visible
CROSS JOIN LATERAL (
    SELECT e.occurred_at FROM myria.events e
    WHERE e.tenant_id = $1 AND e.scope_id = visible AND e.occurred_at <= now()
      AND e.type IS DISTINCT FROM 'myria.withdrawal'
      AND NOT coalesce((SELECT w.reason <> 'restored' FROM myria.withdrawn w
                        WHERE w.tenant_id = $1 AND w.event_seq = e.event_seq
                        ORDER BY w.by_event_seq DESC LIMIT 1), false)
    ORDER BY e.occurred_at DESC, e.event_seq DESC
    LIMIT 1
) newest;

-- name: children
-- The topics directly below a rendering, in order.
SELECT r.topic_id
FROM myria.renderings parent
CROSS JOIN LATERAL unnest(parent.children) WITH ORDINALITY AS child (rendering_id, position)
JOIN myria.renderings r ON r.tenant_id = $1 AND r.rendering_id = child.rendering_id
WHERE parent.tenant_id = $1 AND parent.rendering_id = $2
ORDER BY child.position;

-- name: cursor_secret
SELECT cursor_secret FROM myria.installation;

-- name: seen
-- The places of those sets of participants (JSON arrays) that some scope contains: of the first name's scopes, as many
-- are looked at as one look may cost.
SELECT wanted.place
FROM unnest($2::jsonb[]) WITH ORDINALITY AS wanted (names, place)
WHERE EXISTS (
    SELECT FROM (
        SELECT m.scope_id FROM myria.scope_members m
        WHERE m.tenant_id = $1 AND m.participant = wanted.names->>0
        LIMIT 1000
    ) first
    WHERE NOT EXISTS (
        SELECT FROM jsonb_array_elements_text(wanted.names) AS other (name)
        WHERE NOT EXISTS (
            SELECT FROM myria.scope_members x
            WHERE x.tenant_id = $1 AND x.participant = other.name AND x.scope_id = first.scope_id)));

-- name: subjects_since
-- Those of some scopes that have subjects in a snapshot, and since which number the records of their keys count.
SELECT wanted.scope_id, r.since
FROM (SELECT s.lineage FROM myria.snapshots s WHERE s.tenant_id = $1 AND s.snapshot_id = $2) s
CROSS JOIN unnest($3::bigint[]) AS wanted (scope_id)
CROSS JOIN LATERAL (
    SELECT x.number, x.since, x.root_rendering_id FROM myria.subject_roots x
    WHERE x.tenant_id = $1 AND x.scope_id = wanted.scope_id AND x.number::bigint <@ s.lineage
    ORDER BY x.number DESC LIMIT 1) r
WHERE r.root_rendering_id IS NOT NULL
  AND NOT EXISTS (SELECT FROM myria.scope_roots t
                  WHERE t.tenant_id = $1 AND t.scope_id = wanted.scope_id AND t.number > r.number
                    AND t.number::bigint <@ s.lineage);

-- name: subjects_of_keys
-- Of keys of scopes the newest record in a snapshot, not older than a number, with the subject that the key has.
SELECT wanted.scope_id, wanted.key, h.holders, n.rendering_id, n.node_id, 'subject' AS node_type, n.level, n.topic_id, n.label,
       n.summary, n.metadata, n.children, n.events, n.leaves, n.first_at, n.last_at
FROM (SELECT s.lineage FROM myria.snapshots s WHERE s.tenant_id = $1 AND s.snapshot_id = $2) s
CROSS JOIN unnest($3::bigint[], $4::bytea[], $5::integer[]) AS wanted (scope_id, key, since)
CROSS JOIN LATERAL (
    SELECT x.holders, x.subject FROM myria.subject_holders x
    WHERE x.tenant_id = $1 AND x.scope_id = wanted.scope_id AND x.key = wanted.key AND x.number >= wanted.since
      AND x.number::bigint <@ s.lineage
    ORDER BY x.number DESC LIMIT 1) h
LEFT JOIN myria.subject_nodes n
    ON n.tenant_id = $1 AND n.rendering_id = h.subject AND n.scope_id = wanted.scope_id;

-- name: shared_context
-- The context that all events beneath some renderings share that are not withdrawn; none where they differ or name none.
WITH RECURSIVE reached AS (
    SELECT r.node_id, r.node_type, r.children FROM myria.renderings r
    WHERE r.tenant_id = $1 AND r.rendering_id = ANY ($2::bytea[])
    UNION ALL
    SELECT r.node_id, r.node_type, r.children
    FROM reached u
    CROSS JOIN LATERAL unnest(u.children) AS child
    CROSS JOIN LATERAL (
        SELECT x.node_id, x.node_type, x.children FROM myria.renderings x
        WHERE x.tenant_id = $1 AND x.rendering_id = child OFFSET 0) r
)
SELECT CASE WHEN count(*) = count(e.context_id) AND min(e.context_id) = max(e.context_id) THEN min(e.context_id) END
FROM reached u
CROSS JOIN LATERAL (SELECT n.event_seqs FROM myria.nodes n WHERE n.tenant_id = $1 AND n.node_id = u.node_id LIMIT 1) leaf
CROSS JOIN LATERAL unnest(leaf.event_seqs) AS member
CROSS JOIN LATERAL (
    SELECT x.context_id FROM myria.events x WHERE x.tenant_id = $1 AND x.event_seq = member OFFSET 0) e
WHERE u.node_type = 'leaf_topic'
  AND NOT coalesce((SELECT w.reason <> 'restored' FROM myria.withdrawn w
                    WHERE w.tenant_id = $1 AND w.event_seq = member ORDER BY w.by_event_seq DESC LIMIT 1), false);

-- name: leaves_of_subject
-- The last $3 leaves beneath a node of subjects in the order of time; all for NULL. The latest leaf of each node has the
-- node's own last moment, so of each level no more than the last $3 nodes can hold any of them.
WITH RECURSIVE reached AS (
    SELECT n.rendering_id, n.children, NULL::text COLLATE "C" AS topic_id, n.first_at, n.last_at
    FROM myria.subject_nodes n
    WHERE n.tenant_id = $1 AND n.rendering_id = $2
    UNION ALL
    SELECT level.rendering_id, level.children, level.topic_id, level.first_at, level.last_at
    FROM (
        SELECT x.*, row_number() OVER (ORDER BY x.last_at DESC, x.rendering_id) AS place
        FROM reached u
        CROSS JOIN LATERAL unnest(u.children) AS child
        CROSS JOIN LATERAL (
            SELECT n.rendering_id, n.children, NULL::text COLLATE "C" AS topic_id, n.first_at, n.last_at
            FROM myria.subject_nodes n
            WHERE n.tenant_id = $1 AND n.rendering_id = child
            UNION ALL
            SELECT r.rendering_id, NULL::bytea[], r.topic_id, r.first_at, r.last_at
            FROM myria.renderings r
            WHERE r.tenant_id = $1 AND r.rendering_id = child) x
    ) level
    WHERE $3::integer IS NULL OR level.place <= $3
)
SELECT last.rendering_id, last.topic_id
FROM (SELECT u.rendering_id, u.topic_id, u.first_at
      FROM reached u
      WHERE u.topic_id IS NOT NULL
      ORDER BY u.last_at DESC, u.rendering_id LIMIT $3) last
ORDER BY last.first_at, last.topic_id;
