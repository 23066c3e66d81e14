-- Facts that a model finds in turns become a total that Prometheus reads.
--
-- Old pods go on working: what they find is not counted.

CREATE FUNCTION myria.tally_found_facts(tiers text[], amounts bigint[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    INSERT INTO myria.tallies (family, labels, amount)
    SELECT 'found_facts', ARRAY[found.tier], found.amount
    FROM unnest($1, $2) AS found (tier, amount)
    WHERE found.tier IN ('L0', 'L1', 'L2') AND found.amount BETWEEN 1 AND 1000
$$;
COMMENT ON FUNCTION myria.tally_found_facts IS 'Counts facts that a model found in one turn, by tier.';
REVOKE EXECUTE ON FUNCTION myria.tally_found_facts FROM PUBLIC;
