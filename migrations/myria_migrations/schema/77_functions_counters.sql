-- What is counted, and the totals that metrics are made of. All run as their owner, so no role needs rights to tallies.

-- One duration: the bucket it falls into, by the bucket's upper bound in seconds, and its microseconds for the sum.
CREATE OR REPLACE FUNCTION myria.tally_duration(family text, label text, took interval) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    INSERT INTO myria.tallies (family, labels, amount)
    SELECT $1, ARRAY[$2, coalesce(
        (SELECT b.le FROM unnest(ARRAY['0.1', '0.5', '1.0', '2.0', '5.0', '10.0', '30.0', '60.0', '120.0', '300.0', '600.0',
                                       '1800.0', '3600.0']) WITH ORDINALITY AS b (le, position)
         WHERE d.seconds <= b.le::numeric ORDER BY b.position LIMIT 1), '+Inf')], 1
    FROM (SELECT greatest(extract(epoch FROM took), 0) AS seconds) d
    UNION ALL
    SELECT $1, ARRAY[$2, 'sum'], greatest(extract(epoch FROM took), 0) * 1000000
$$;
REVOKE EXECUTE ON FUNCTION myria.tally_duration FROM PUBLIC;

CREATE OR REPLACE FUNCTION myria.tally_build() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    asked_at timestamptz;
BEGIN
    SELECT r.created_at INTO asked_at
    FROM myria.rebuild_requests r WHERE r.tenant_id = NEW.tenant_id AND r.request_id = NEW.request_id;
    INSERT INTO myria.tallies (family, labels, amount)
    SELECT 'builds_finished', ARRAY[NEW.trigger, NEW.status], 1
    UNION ALL
    SELECT 'build_tasks', ARRAY['done'], NEW.tasks_done - coalesce(NEW.tasks_degraded, 0) WHERE NEW.tasks_done > 0
    UNION ALL
    SELECT 'build_tasks', ARRAY['degraded'], NEW.tasks_degraded WHERE NEW.tasks_degraded > 0
    UNION ALL
    SELECT 'validation_failures', ARRAY[left(v->>'rule', 100)], count(*)
    FROM jsonb_array_elements(CASE WHEN jsonb_typeof(NEW.error#>'{details,violations}') = 'array'
                                   THEN NEW.error#>'{details,violations}' END) AS v
    WHERE NEW.status = 'failed' AND v->>'rule' IS NOT NULL
    GROUP BY 2
    UNION ALL
    SELECT 'llm_units', ARRAY[one.name], (NEW.counts->>('llm_units_' || one.name))::bigint
    FROM unnest(ARRAY['planned', 'reused', 'degraded']) AS one (name)
    WHERE (NEW.counts->>('llm_units_' || one.name))::bigint > 0
    UNION ALL
    SELECT 'llm_repairs', ARRAY[]::text[], (NEW.counts->>'llm_repairs')::bigint
    WHERE (NEW.counts->>'llm_repairs')::bigint > 0;
    IF asked_at IS NOT NULL THEN
        PERFORM myria.tally_duration('build_phase', 'queue', NEW.created_at - asked_at);
    END IF;
    IF NEW.started_at IS NOT NULL THEN
        PERFORM myria.tally_duration('build_phase', 'start', NEW.started_at - NEW.created_at);
        PERFORM myria.tally_duration('build_phase', 'compile', NEW.finished_at - NEW.started_at);
        PERFORM myria.tally_duration('build_duration', NEW.status, NEW.finished_at - NEW.started_at);
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION myria.tally_move() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO myria.tallies (family, labels, amount) VALUES ('pointer_moves', ARRAY[NEW.kind], 1);
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION myria.tally_llm_call() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO myria.tallies (family, labels, amount)
    SELECT 'llm_calls', ARRAY[NEW.workflow, left(NEW.outcome, 100)], 1
    UNION ALL
    SELECT 'llm_tokens', ARRAY[NEW.workflow, 'input'], NEW.input_tokens WHERE NEW.input_tokens > 0
    UNION ALL
    SELECT 'llm_tokens', ARRAY[NEW.workflow, 'output'], NEW.output_tokens WHERE NEW.output_tokens > 0
    UNION ALL
    SELECT 'llm_cost', ARRAY[NEW.workflow], NEW.cost_microusd WHERE NEW.cost_microusd > 0;
    PERFORM myria.tally_duration('llm_call_duration', NEW.workflow, make_interval(secs => NEW.latency_ms / 1000.0));
    RETURN NULL;
END $$;

-- An agent may name any tool: those that are none of this list are counted together, so that labels stay few.
CREATE OR REPLACE FUNCTION myria.tally_feedback() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO myria.tallies (family, labels, amount)
    SELECT 'tool_feedback', ARRAY[
        CASE WHEN a.tool IN ('remember', 'batch_remember', 'recall', 'forget', 'restore', 'link', 'amend', 'reflect', 'context',
                             'tool_feedback', 'memory_stats', 'memory_consolidate', 'graph_explore', 'fragment_history')
             THEN a.tool ELSE 'other' END, a.relevant::text, a.sufficient::text], count(*)
    FROM added a GROUP BY 2;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION myria.tally_decision() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO myria.tallies (family, labels, amount) VALUES ('review_decisions', ARRAY[NEW.review], 1);
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION myria.tally_found_facts(tiers text[], amounts bigint[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    INSERT INTO myria.tallies (family, labels, amount)
    SELECT 'found_facts', ARRAY[found.tier], found.amount
    FROM unnest($1, $2) AS found (tier, amount)
    WHERE found.tier IN ('L0', 'L1', 'L2') AND found.amount BETWEEN 1 AND 1000
$$;
COMMENT ON FUNCTION myria.tally_found_facts IS 'Counts facts that a model found in one turn, by tier.';
REVOKE EXECUTE ON FUNCTION myria.tally_found_facts FROM PUBLIC;

CREATE OR REPLACE FUNCTION myria.tally_erasure() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO myria.tallies (family, labels, amount) VALUES ('erasures', ARRAY['begun'], 1);
        RETURN NULL;
    END IF;
    INSERT INTO myria.tallies (family, labels, amount)
    SELECT 'erasures', ARRAY['done'], 1
    UNION ALL
    SELECT 'erased_rows', ARRAY[left(c.key, 100)], c.value::bigint FROM jsonb_each_text(NEW.counts) c WHERE c.value::bigint > 0;
    PERFORM myria.tally_duration('erasure_duration', 'done', NEW.finished_at - NEW.created_at);
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION myria.tallied() RETURNS TABLE (family text, labels text[], amount bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT t.family, t.labels, sum(t.amount)::bigint FROM myria.tallies t GROUP BY t.family, t.labels
$$;
COMMENT ON FUNCTION myria.tallied IS 'The totals; they never become smaller.';

-- Two at once fold different rows: the second waits for the first one's, finds them gone, and leaves the sums alone.
CREATE OR REPLACE FUNCTION myria.fold_tallies() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH gone AS (
        DELETE FROM myria.tallies WHERE (SELECT count(*) FROM myria.tallies) > 1000 RETURNING family, labels, amount
    )
    INSERT INTO myria.tallies (family, labels, amount)
    SELECT g.family, g.labels, sum(g.amount) FROM gone g GROUP BY g.family, g.labels
$$;
COMMENT ON FUNCTION myria.fold_tallies IS 'Replaces many rows of tallies by their sums.';
