-- name: present
SELECT to_regclass('myria.schema_migrations') IS NOT NULL;

-- name: create_register
CREATE SCHEMA IF NOT EXISTS myria;

-- name: create_register_table
CREATE TABLE IF NOT EXISTS myria.schema_migrations (
    version    integer PRIMARY KEY,
    name       text NOT NULL,
    checksum   text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- name: applied
SELECT version, name, checksum FROM myria.schema_migrations ORDER BY version;

-- name: register
INSERT INTO myria.schema_migrations (version, name, checksum) VALUES ($1, $2, $3);

-- name: own_migration_lock
SELECT pg_advisory_xact_lock(7237120611);

-- name: server_version
SELECT current_setting('server_version_num')::integer;

-- name: roles
SELECT rolname FROM pg_catalog.pg_roles WHERE rolname = ANY($1::text[]);
