-- Which units of a scope's tree were planned without the model that was asked for: later builds go on saying so until the
-- units are planned anew. Null of a build of the release before: nobody knows. (building/compilation.py)

ALTER TABLE myria.scope_roots ADD COLUMN degraded bytea[];
COMMENT ON COLUMN myria.scope_roots.degraded IS 'The top renderings of the units that were planned without the model that was asked for.';
