-- What a withdrawal names is looked up by its id alone: where PostgreSQL has no statistics yet, it read a whole scope.
--
-- Old pods go on working.

CREATE OR REPLACE VIEW myria.withdrawals_of_log WITH (security_invoker) AS
SELECT w.tenant_id, w.scope_id, e.event_seq, w.event_seq AS by_event_seq, w.payload->>'reason' AS reason,
       (SELECT s.event_seq FROM myria.events s
        WHERE s.tenant_id = w.tenant_id AND s.event_id = w.payload->>'superseded_by' AND s.event_seq < w.event_seq
        UNION ALL
        SELECT s.event_seq FROM myria.events s
        WHERE s.tenant_id = w.tenant_id AND s.dedupe_key = decode(w.payload->>'superseded_by_key', 'hex')
          AND s.event_seq < w.event_seq
        LIMIT 1) AS superseded_by
FROM myria.events w
CROSS JOIN LATERAL (
    SELECT DISTINCT named.event_id
    FROM jsonb_array_elements_text(
        CASE WHEN jsonb_typeof(w.payload->'events') = 'array' THEN w.payload->'events' ELSE '[]' END) AS named (event_id)
) named
CROSS JOIN LATERAL (
    SELECT x.event_seq, x.scope_id FROM myria.events x
    WHERE x.tenant_id = w.tenant_id AND x.event_id = named.event_id OFFSET 0
) e
WHERE w.type = 'myria.withdrawal' AND w.channel = 'myria' AND w.internal
  AND w.payload->>'reason' IN ('superseded', 'forgotten', 'expired', 'restored')
  AND e.scope_id = w.scope_id AND e.event_seq < w.event_seq;
COMMENT ON VIEW myria.withdrawals_of_log IS 'The rows of withdrawn as the log gives them.';
