-- The statements that bring the planes' roles and the database into being, in order; none when all is as it should be.
-- $1 role names, $2 their SCRAM verifiers (same order), $3 the database, $4 its owner.
WITH wanted AS (
    SELECT * FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w(name, verifier, place)
)
SELECT format('CREATE ROLE %I LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE PASSWORD %L', w.name, w.verifier) AS statement,
       1 AS step, w.place
FROM wanted w
WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = w.name)
UNION ALL
SELECT format('ALTER ROLE %I LOGIN PASSWORD %L', w.name, w.verifier), 2, w.place
FROM wanted w
JOIN pg_catalog.pg_authid a ON a.rolname = w.name
WHERE NOT a.rolcanlogin OR a.rolpassword IS DISTINCT FROM w.verifier
UNION ALL
SELECT format('CREATE DATABASE %I OWNER %I TEMPLATE template0', $3::text, $4::text), 3, 0
WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_database d WHERE d.datname = $3)
ORDER BY step, place
