#!/bin/sh
# Run once by the image of PostgreSQL, on an empty volume: a database for Myria, and a login that owns it and is no
# superuser, since row-level security does not hold for superusers.
set -eu
psql --no-psqlrc --set=ON_ERROR_STOP=1 --username="$POSTGRES_USER" --dbname=postgres <<'SQL'
\getenv password DATABASE_PASSWORD
CREATE ROLE myria LOGIN PASSWORD :'password';
CREATE DATABASE memory OWNER myria;
SQL
