-- The schema myria, and the register of what was applied to it, by which programs tell whether it is theirs.

CREATE SCHEMA IF NOT EXISTS myria;

CREATE TABLE myria.schema_migrations (
    version    integer PRIMARY KEY,
    name       text NOT NULL,
    checksum   text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE myria.schema_migrations IS 'Version 1 is the baseline, each later one a numbered migration. Version 0 is the functions, which change in place.';
