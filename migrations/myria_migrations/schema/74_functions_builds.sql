-- Revisions of builds, and what snapshots show.

CREATE OR REPLACE FUNCTION myria.note_revision() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.revision := pg_current_xact_id();
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION myria.forget_attempts() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE myria.tenants t SET attempted_cutoff = s.cutoff
    FROM myria.snapshots s
    WHERE t.tenant_id = NEW.tenant_id AND s.tenant_id = NEW.tenant_id AND s.snapshot_id = NEW.to_snapshot_id;
    RETURN NULL;
END $$;

-- A build notes in its snapshot's counts how many scopes it changed: none, and the snapshot shows what its parent shows.
CREATE OR REPLACE FUNCTION myria.snapshots_before(tenant text, snapshot text) RETURNS TABLE (snapshot_id text, differs boolean)
LANGUAGE sql STABLE
AS $$
    WITH RECURSIVE before AS (
        SELECT s.parent_snapshot_id, coalesce((s.counts->>'scopes_changed')::bigint, 0) > 0 AS differs
        FROM myria.snapshots s WHERE s.tenant_id = tenant AND s.snapshot_id = snapshot
        UNION ALL
        SELECT s.parent_snapshot_id, coalesce((s.counts->>'scopes_changed')::bigint, 0) > 0
        FROM before b
        JOIN myria.snapshots s ON s.tenant_id = tenant AND s.snapshot_id = b.parent_snapshot_id
        WHERE NOT b.differs
    )
    SELECT b.parent_snapshot_id, b.differs FROM before b WHERE b.parent_snapshot_id IS NOT NULL
$$;
COMMENT ON FUNCTION myria.snapshots_before IS 'The ancestors of a snapshot up to the first that shows something else: that one differs.';

-- For a call in FROM PostgreSQL puts in the query itself, so the function costs nothing.
CREATE OR REPLACE FUNCTION myria.root_within(tenant text, scope bigint, lineage int8multirange)
RETURNS SETOF myria.scope_roots ROWS 1
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT x.* FROM myria.scope_roots x
    WHERE x.tenant_id = tenant AND x.scope_id = scope AND x.number::bigint <@ lineage
    ORDER BY x.number DESC LIMIT 1
$$;
COMMENT ON FUNCTION myria.root_within IS 'The newest row of a scope within a lineage: what its snapshot shows of the scope.';

-- Not so here: a sub-select is never put in, so each row pays a call of some microseconds.
CREATE OR REPLACE FUNCTION myria.is_withdrawn(tenant text, event bigint, upto bigint) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT coalesce((SELECT w.reason <> 'restored' FROM myria.withdrawn w
                     WHERE w.tenant_id = tenant AND w.event_seq = event AND w.by_event_seq <= upto
                     ORDER BY w.by_event_seq DESC LIMIT 1), false)
$$;
COMMENT ON FUNCTION myria.is_withdrawn IS 'Whether the newest withdrawal of an event up to a number says so.';

CREATE OR REPLACE FUNCTION myria.schedule_since(name text, expression text) RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    known timestamptz;
BEGIN
    SELECT s.since INTO known FROM myria.schedules s WHERE s.name = $1 AND s.expression = $2;
    IF known IS NULL THEN
        INSERT INTO myria.schedules AS s (name, expression) VALUES ($1, $2)
        ON CONFLICT ON CONSTRAINT schedules_pkey DO UPDATE
            SET expression = EXCLUDED.expression,
                since = CASE WHEN s.expression = EXCLUDED.expression THEN s.since ELSE clock_timestamp() END
        RETURNING s.since INTO known;
    END IF;
    RETURN known;
END $$;
COMMENT ON FUNCTION myria.schedule_since IS 'Since when a schedule has this expression: from the first call on.';

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
        CROSS JOIN LATERAL myria.root_within(tenant, c.scope_id, p.lineage) root
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
COMMENT ON FUNCTION myria.snapshot_tree IS 'A snapshot''s trees in reading order: SELECT repeat(''  '', depth) || label FROM myria.snapshot_tree(...).';
