-- A note of importance below 0.5 ends when it was not used for as many days as its kind allows: what was kept as of little
-- worth stayed for as long as its importance took to fade. (notes/expiry.py)
--
-- Old pods go on working: they leave out such a note later, as they did before.

CREATE OR REPLACE FUNCTION myria.note_ends_at(kind text, importance real, anchor boolean, changed_at timestamptz,
                                              used_at timestamptz, lasts_days integer)
RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT CASE
        WHEN anchor THEN NULL
        WHEN lasts_days IS NOT NULL OR kind IN ('fact_l1', 'fact_l2')
        THEN to_timestamp((floor(extract(epoch FROM changed_at) / 86400)
                           + coalesce(lasts_days, CASE kind WHEN 'fact_l1' THEN 1 ELSE 7 END))::double precision * 86400)
        WHEN importance::double precision >= 0.8 THEN NULL
        WHEN kind IN ('fact', 'error', 'relation', 'episode', 'decision', 'procedure')
        THEN greatest(changed_at, used_at) + make_interval(secs => 86400 * greatest(
            CASE kind WHEN 'decision' THEN 90::double precision WHEN 'procedure' THEN 30 ELSE 60 END,
            CASE WHEN importance::double precision >= 0.5 THEN 139 * ln(importance::double precision / 0.1) / ln(2) END))
    END
$$;

UPDATE myria.note_looks k SET ends_at = n.ends_at, look_at = least(k.look_at, n.ends_at)
FROM (
    SELECT s.tenant_id, s.note_id,
           myria.note_ends_at(s.kind, s.importance, s.anchor, s.changed_at, s.used_at, m.lasts_days) AS ends_at
    FROM myria.standing_notes s
    JOIN myria.notes m ON m.tenant_id = s.tenant_id AND m.note_id = s.note_id
    WHERE s.live AND NOT s.session AND s.reason IS DISTINCT FROM 'restored' AND s.importance > 0.1 AND s.importance < 0.5
) n
WHERE k.tenant_id = n.tenant_id AND k.note_id = n.note_id AND k.ends_at > n.ends_at;
