-- name: append
-- In a transaction that `session.begin_append` began; returns what is new.
SELECT event_id, event_seq FROM myria.append($1, $2);

-- name: append_alone
-- Events of which nothing is folded, in a transaction of their own; refused as a whole (MYR03) where one is not new.
SELECT event_id, event_seq FROM myria.append_alone($1, $2, $3, $4, $5, $6);

-- name: find_duplicates
-- What stands already where an insert was skipped: by dedupe key, or by event_id (a retry, an import). Contents are not
-- compared with an event that the new one's participants may not see: the time of a refusal tells nothing of it.
SELECT i.position, e.event_id, e.event_seq, s.participants, own.participants <@ s.participants AS is_visible,
       CASE WHEN $3 OR own.participants <@ s.participants
            THEN e.payload <> i.payload OR e.scope_id <> i.scope_id OR e.occurred_at <> i.occurred_at
       END AS payload_differs,
       e.channel <> i.channel OR e.type IS DISTINCT FROM i.type OR e.context_id IS DISTINCT FROM i.context_id
           OR e.source_event_key IS DISTINCT FROM i.source_event_key OR e.internal <> i.internal
           OR e.topic_hints <> i.topic_hints AS annotations_differ
FROM unnest($2::myria.new_event[]) WITH ORDINALITY AS i (event_id, scope_id, occurred_at, channel, type, context_id,
                                                         source_event_key, dedupe_key, internal, payload, topic_hints,
                                                         utc_offset, position)
CROSS JOIN LATERAL (
    SELECT * FROM myria.events x WHERE x.tenant_id = $1 AND x.event_id = i.event_id
    UNION ALL
    SELECT * FROM myria.events x
    WHERE x.tenant_id = $1 AND x.dedupe_key = i.dedupe_key AND x.event_id <> i.event_id
) e
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = e.scope_id
JOIN myria.scopes own ON own.tenant_id = $1 AND own.scope_id = i.scope_id
ORDER BY i.position;

-- name: by_seqs
-- Whole events of the scopes given, for answers; the caller's mask is applied again here. OFFSET 0 keeps each look-up one
-- by number: without statistics, as in a new database, PostgreSQL would read all of the tenant's index entries.
SELECT e.event_seq, e.event_id, e.scope_id, e.occurred_at, e.utc_offset, e.channel, e.type, e.context_id,
       e.source_event_key, e.internal, e.payload, e.topic_hints
FROM unnest($2::bigint[]) AS wanted
CROSS JOIN LATERAL (SELECT * FROM myria.events x WHERE x.tenant_id = $1 AND x.event_seq = wanted OFFSET 0) e
WHERE e.scope_id = ANY ($3::bigint[]);

-- name: placed
-- Where and when some events of visible scopes were.
SELECT e.event_seq, e.scope_id, e.occurred_at
FROM unnest($2::bigint[]) AS wanted
CROSS JOIN LATERAL (SELECT * FROM myria.events x WHERE x.tenant_id = $1 AND x.event_seq = wanted OFFSET 0) e
WHERE e.scope_id = ANY ($3::bigint[]);

-- name: texts
-- As by_seqs, with no more than what tells what was said, and whether that is a note.
SELECT e.event_seq, e.event_id, e.scope_id, e.type, e.context_id, e.payload
FROM unnest($2::bigint[]) AS wanted
CROSS JOIN LATERAL (SELECT * FROM myria.events x WHERE x.tenant_id = $1 AND x.event_seq = wanted OFFSET 0) e
WHERE e.scope_id = ANY ($3::bigint[]);

-- name: short_payloads
-- Of events what their writers said, where that is short ($4 bytes): as it is stored, which is told without reading it, and as it is.
SELECT e.event_seq, e.payload
FROM unnest($2::bigint[]) AS wanted
CROSS JOIN LATERAL (SELECT * FROM myria.events x WHERE x.tenant_id = $1 AND x.event_seq = wanted OFFSET 0) e
WHERE e.scope_id = ANY ($3::bigint[]) AND pg_column_size(e.payload) <= $4
  AND octet_length(e.payload::text) <= $4;

-- name: ids
-- The ids of events that are named by their numbers, whoever may see them.
SELECT e.event_seq, e.event_id
FROM unnest($2::bigint[]) AS wanted
CROSS JOIN LATERAL (SELECT * FROM myria.events x WHERE x.tenant_id = $1 AND x.event_seq = wanted OFFSET 0) e;

-- name: withdrawn
-- Those of some events that are withdrawn now, or of notes that have ended.
SELECT wanted AS event_seq
FROM unnest($2::bigint[]) AS wanted
WHERE coalesce((SELECT w.reason <> 'restored' FROM myria.withdrawn w
                WHERE w.tenant_id = $1 AND w.event_seq = wanted
                ORDER BY w.by_event_seq DESC LIMIT 1), false)
   OR wanted IN (SELECT d.event_seq FROM myria.ended_events($1, now()) d);

-- name: by_id
-- An event, whose it is, and what withdrawals say of it, now and at the cutoff of the active snapshot. Withdrawals and links
-- are shown to nobody.
SELECT e.event_seq, e.event_id, e.scope_id, e.occurred_at, e.utc_offset, e.ingested_at, e.channel, e.type, e.context_id,
       e.source_event_key, e.internal, e.payload, e.topic_hints, s.participants,
       CASE WHEN e.type = 'myria.note' AND e.event_seq IN (
                SELECT d.event_seq FROM myria.ended_events($1, now()) d)
            THEN 'expired' ELSE newest.reason END AS reason,
       successor.event_id AS successor_id, successor_scope.participants AS successor_participants,
       coalesce((SELECT w.reason <> 'restored' FROM myria.withdrawn w
                 WHERE w.tenant_id = $1 AND w.event_seq = e.event_seq AND w.by_event_seq <= (
                     SELECT p.cutoff FROM myria.active_snapshots a JOIN myria.snapshots p
                         ON p.tenant_id = $1 AND p.snapshot_id = a.snapshot_id
                     WHERE a.tenant_id = $1)
                 ORDER BY w.by_event_seq DESC LIMIT 1), false) AS withdrawn_at_cutoff
FROM myria.events e
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = e.scope_id
LEFT JOIN LATERAL (
    SELECT w.reason, w.superseded_by FROM myria.withdrawn w
    WHERE w.tenant_id = $1 AND w.event_seq = e.event_seq
    ORDER BY w.by_event_seq DESC LIMIT 1
) newest ON true
LEFT JOIN myria.events successor ON successor.tenant_id = $1 AND successor.event_seq = newest.superseded_by
LEFT JOIN myria.scopes successor_scope ON successor_scope.tenant_id = $1 AND successor_scope.scope_id = successor.scope_id
WHERE e.tenant_id = $1 AND e.event_id = $2 AND (e.type IN ('myria.withdrawal', 'myria.link')) IS NOT TRUE;

-- name: tail_length
-- The length of the fresh tail of the whole tenant, counted up to $3.
SELECT count(*) FROM (
    SELECT FROM myria.events e WHERE e.tenant_id = $1 AND e.event_seq > $2 LIMIT $3
) tail;

-- name: short_tail
-- The same rows as tail, where the tenant's tail is shorter than the list of scopes would be: it is read once for all,
-- and each event's scope is looked up among those that everyone who asks belongs to. Scopes in $5 are read from the
-- cutoff on, the others from transaction $4.
SELECT e.event_seq, e.event_id, e.scope_id, e.xid::text::bigint AS xid, e.occurred_at, e.utc_offset, e.channel, e.type,
       e.context_id, e.payload, e.topic_hints
FROM myria.events e
CROSS JOIN LATERAL (
    SELECT count(*) AS belonging FROM myria.scope_members m
    WHERE m.tenant_id = $1 AND m.participant = ANY ($3::text[]) AND m.scope_id = e.scope_id
) asked
WHERE e.tenant_id = $1 AND e.event_seq > $2 AND NOT e.internal
  AND (e.xid >= $4::bigint::text::xid8 OR e.scope_id = ANY ($5::bigint[]))
  AND asked.belonging = (SELECT count(DISTINCT p) FROM unnest($3::text[]) AS p);

-- name: tail
-- The fresh tail of scopes: non-internal events past the cutoff. Each scope has a lower bound of xid, a bound for
-- the index scan only: the snapshot's tail_xid at first, later the oldest transaction in flight at the last look.
SELECT e.event_seq, e.event_id, e.scope_id, e.xid::text::bigint AS xid, e.occurred_at, e.utc_offset, e.channel, e.type,
       e.context_id, e.payload, e.topic_hints
FROM unnest($2::bigint[], $3::bigint[]) AS wanted (scope_id, xid)
CROSS JOIN LATERAL (
    SELECT * FROM myria.events x
    WHERE x.tenant_id = $1 AND x.scope_id = wanted.scope_id AND x.xid >= wanted.xid::text::xid8
      AND x.event_seq > $4 AND NOT x.internal
    OFFSET 0
) e;

-- name: internal
-- The internal events of scopes, below or above the cutoff; withdrawals and links are shown to nobody: a link names a note
-- that those who see its scope may not see.
SELECT e.event_seq, e.event_id, e.scope_id, e.xid::text::bigint AS xid, e.occurred_at, e.utc_offset, e.channel, e.type,
       e.context_id, e.payload, e.topic_hints
FROM unnest($2::bigint[], $3::bigint[]) AS wanted (scope_id, xid)
CROSS JOIN LATERAL (
    SELECT * FROM myria.events x
    WHERE x.tenant_id = $1 AND x.scope_id = wanted.scope_id AND x.xid >= wanted.xid::text::xid8 AND x.internal
    OFFSET 0
) e
WHERE (e.type IN ('myria.withdrawal', 'myria.link')) IS NOT TRUE;

-- name: of_key
-- The event with a dedupe key.
SELECT e.event_id, e.occurred_at, e.payload FROM myria.events e WHERE e.tenant_id = $1 AND e.dedupe_key = $2;

-- name: stored_keys
-- Which of these dedupe keys the log has.
SELECT e.dedupe_key FROM myria.events e WHERE e.tenant_id = $1 AND e.dedupe_key = ANY ($2::bytea[]);
