-- Totals of what language models were asked and what it cost, which outlive the audit's rows, as those of builds do.
-- The functions run as their owner, so no role needs new rights.

CREATE FUNCTION myria.tally_llm_call() RETURNS trigger
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
CREATE TRIGGER tally_llm_call AFTER INSERT ON myria.llm_calls
    FOR EACH ROW EXECUTE FUNCTION myria.tally_llm_call();

CREATE FUNCTION myria.tally_llm_units() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO myria.tallies (family, labels, amount)
    SELECT 'llm_units', ARRAY[one.name], (NEW.counts->>('llm_units_' || one.name))::bigint
    FROM unnest(ARRAY['planned', 'reused', 'degraded']) AS one (name)
    WHERE (NEW.counts->>('llm_units_' || one.name))::bigint > 0
    UNION ALL
    SELECT 'llm_repairs', ARRAY[]::text[], (NEW.counts->>'llm_repairs')::bigint
    WHERE (NEW.counts->>'llm_repairs')::bigint > 0;
    RETURN NULL;
END $$;
CREATE TRIGGER tally_llm_units AFTER UPDATE ON myria.builds
    FOR EACH ROW WHEN (OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL) EXECUTE FUNCTION myria.tally_llm_units();
