-- The function called its column as its table, so it went through the roots again and again instead of down.

CREATE OR REPLACE FUNCTION myria.snapshot_tree(tenant text, snapshot text)
RETURNS TABLE (
    participants text[], depth integer, node_type text, label text, summary text, events integer,
    first_at timestamptz, last_at timestamptz, topic_id text, node_id bytea, rendering_id bytea
)
LANGUAGE sql STABLE
AS $$
    WITH RECURSIVE pinned AS (
        SELECT s.lineage FROM myria.snapshots s WHERE s.tenant_id = tenant AND s.snapshot_id = snapshot
    ), tree (scope, level, node, path) AS (
        SELECT c.participants, 0, r, ARRAY[c.scope_id]
        FROM pinned p
        CROSS JOIN myria.scopes c
        CROSS JOIN LATERAL (
            SELECT x.root_rendering_id FROM myria.scope_roots x
            WHERE x.tenant_id = tenant AND x.scope_id = c.scope_id AND x.number::bigint <@ p.lineage
            ORDER BY x.number DESC LIMIT 1
        ) root
        JOIN myria.renderings r ON r.tenant_id = tenant AND r.rendering_id = root.root_rendering_id
        WHERE c.tenant_id = tenant
        UNION ALL
        SELECT t.scope, t.level + 1, r, t.path || child.position
        FROM tree t
        CROSS JOIN LATERAL unnest((t.node).children) WITH ORDINALITY AS child (rendering_id, position)
        JOIN myria.renderings r ON r.tenant_id = tenant AND r.rendering_id = child.rendering_id
    )
    SELECT scope, level, (node).node_type, (node).label, (node).summary, (node).events, (node).first_at,
           (node).last_at, (node).topic_id, (node).node_id, (node).rendering_id
    FROM tree ORDER BY path
$$;
