-- Totals that outlive their rows: how builds ended, what models were asked, what was erased.
--
-- Each act inserts rows of its own in its own transaction, so that nobody waits for anybody; the sum is the total, and
-- fold_tallies() replaces the rows by their sums now and then. They name no tenant.

CREATE TABLE myria.tallies (
    family text COLLATE "C" NOT NULL,
    labels text[] COLLATE "C" NOT NULL DEFAULT '{}',
    amount bigint NOT NULL
);
COMMENT ON TABLE myria.tallies IS 'Totals since the database was made, in parts: the sum over equal (family, labels) counts.';
