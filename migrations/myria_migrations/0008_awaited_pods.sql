-- Since when a build's pods are awaited: a build whose pods never start is given up after operator.pod_start_timeout_s.
--
-- Old operators leave it out; a build of theirs is ended by its deadline, as before.

ALTER TABLE myria.builds ADD COLUMN pods_wanted_at timestamptz;
COMMENT ON COLUMN myria.builds.pods_wanted_at IS 'When its Job was made, or last went on after suspend.';
