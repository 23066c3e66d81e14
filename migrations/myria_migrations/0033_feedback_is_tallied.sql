-- What agents say of answers becomes a total that Prometheus reads.
--
-- Old pods go on working: a trigger counts for them. Feedback from before is counted once.

-- An agent may name any tool: those that are none of this list are counted together, so that labels stay few.
CREATE FUNCTION myria.tool_of_feedback(named text) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE WHEN $1 = ANY (ARRAY['remember', 'batch_remember', 'recall', 'forget', 'restore', 'link', 'amend', 'reflect',
                                     'context', 'tool_feedback', 'memory_stats', 'memory_consolidate', 'graph_explore',
                                     'fragment_history'])
                THEN $1 ELSE 'other' END
$$;
COMMENT ON FUNCTION myria.tool_of_feedback IS 'The label under which feedback on a tool is counted.';

CREATE FUNCTION myria.tally_feedback() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO myria.tallies (family, labels, amount)
    SELECT 'tool_feedback', ARRAY[myria.tool_of_feedback(a.tool), a.relevant::text, a.sufficient::text], count(*)
    FROM added a GROUP BY 2;
    RETURN NULL;
END $$;
CREATE TRIGGER tally_feedback AFTER INSERT ON myria.tool_feedback REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION myria.tally_feedback();

SELECT set_config('myria.tenant', '*', true);
INSERT INTO myria.tallies (family, labels, amount)
SELECT 'tool_feedback', ARRAY[myria.tool_of_feedback(f.tool), f.relevant::text, f.sufficient::text], count(*)
FROM myria.tool_feedback f GROUP BY 2;
