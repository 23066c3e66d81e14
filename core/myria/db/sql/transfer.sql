-- name: newest_event_seq
-- Read while the append lock is held exclusively: every event up to it is committed.
SELECT coalesce(max(event_seq), 0) FROM myria.events WHERE tenant_id = $1;

-- name: count
-- An estimate is not enough for a progress bar that must end at its end.
SELECT count(*) FROM myria.events e
WHERE e.tenant_id = $1 AND e.event_seq <= $2
  AND ($3 OR e.type IS DISTINCT FROM 'myria.withdrawal' AND NOT coalesce((SELECT x.reason <> 'restored' FROM myria.withdrawn x
                     WHERE x.tenant_id = $1 AND x.event_seq = e.event_seq
                     ORDER BY x.by_event_seq DESC LIMIT 1), false)
           AND e.event_seq NOT IN (SELECT d.event_seq FROM myria.ended_events($1, now()) d));

-- name: page
-- One page of an export, in event_seq order; payload and hints leave as the text PostgreSQL holds. $5: what is withdrawn,
-- and the withdrawals, too.
SELECT e.event_seq, e.event_id, e.occurred_at, e.utc_offset, e.channel, s.participants, e.source_event_key, e.type, e.context_id,
       e.internal, e.payload::text AS payload, e.topic_hints::text AS topic_hints
FROM myria.events e
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = e.scope_id
WHERE e.tenant_id = $1 AND e.event_seq > $2 AND e.event_seq <= $3
  AND ($5 OR e.type IS DISTINCT FROM 'myria.withdrawal' AND NOT coalesce((SELECT x.reason <> 'restored' FROM myria.withdrawn x
                     WHERE x.tenant_id = $1 AND x.event_seq = e.event_seq
                     ORDER BY x.by_event_seq DESC LIMIT 1), false)
           AND e.event_seq NOT IN (SELECT d.event_seq FROM myria.ended_events($1, now()) d))
ORDER BY e.event_seq
LIMIT $4;

-- name: identities
-- Of some ids made of content, what they are under the tenant's key, and whether an event with that id was erased.
SELECT i.event_id, i.keyed,
       EXISTS (SELECT FROM myria.events e JOIN myria.erased x ON x.tenant_id = $1 AND x.event_seq = e.event_seq
               WHERE e.tenant_id = $1 AND e.event_id = i.keyed) AS is_erased
FROM unnest($2::text[], myria.keyed_event_ids($1, $2)) AS i (event_id, keyed);

-- name: said
-- Whether stored messages say these texts, who may see them, and whether another of the same conversation and instant says
-- so: a version of the message, or one whose place in a minute it took since one was deleted.
SELECT e.event_id, e.occurred_at, s.participants, said.text, e.payload->>'text' = said.text AS is_same, EXISTS (
    SELECT FROM myria.events x
    WHERE x.tenant_id = $1 AND x.scope_id = e.scope_id AND x.occurred_at = e.occurred_at
      AND x.context_id = e.context_id AND x.payload->>'text' = said.text
) AS is_known
FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS said (event_id, text, place)
JOIN myria.events e ON e.tenant_id = $1 AND e.event_id = said.event_id
JOIN myria.scopes s ON s.tenant_id = $1 AND s.scope_id = e.scope_id
ORDER BY said.place;

-- name: standing
-- Of a message, the version that stands now: each has the first one's source key, and more. None where it was withdrawn, or
-- replaced by what is no version of it.
WITH RECURSIVE chain AS (
    SELECT e.event_seq, e.event_id, e.source_event_key || '~' AS versions
    FROM myria.events e WHERE e.tenant_id = $1 AND e.event_id = $2
    UNION
    SELECT e.event_seq, e.event_id, c.versions
    FROM chain c
    CROSS JOIN LATERAL (
        SELECT w.reason, w.superseded_by FROM myria.withdrawn w
        WHERE w.tenant_id = $1 AND w.event_seq = c.event_seq
        ORDER BY w.by_event_seq DESC LIMIT 1
    ) newest
    JOIN myria.events e ON e.tenant_id = $1 AND e.event_seq = newest.superseded_by
    WHERE newest.reason = 'superseded' AND starts_with(e.source_event_key, c.versions)
)
SELECT c.event_id FROM chain c
WHERE coalesce((SELECT w.reason = 'restored' FROM myria.withdrawn w
                WHERE w.tenant_id = $1 AND w.event_seq = c.event_seq
                ORDER BY w.by_event_seq DESC LIMIT 1), true);

-- name: analyze
ANALYZE myria.events, myria.scopes, myria.scope_members;
