-- name: keys
-- The keys of an administrator's tenant, newest first, after one; or one key.
SELECT * FROM myria.keys_for($1, $2, $3, $4, $5);

-- name: key_names
-- What some keys of an administrator's tenant are called.
SELECT * FROM myria.key_names_for($1, $2, $3);

-- name: create_key
SELECT myria.create_key_for($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13);

-- name: rotate_key
SELECT myria.rotate_key_for($1, $2, $3, $4, $5, $6, $7, $8);

-- name: revoke_key
SELECT myria.revoke_key_for($1, $2, $3, $4, $5);

-- name: grants
-- What programs were allowed with keys of an administrator's tenant, newest first, after one; or one grant.
SELECT * FROM myria.grants_for($1, $2, $3, $4, $5);

-- name: end_grant
SELECT myria.end_grant_for($1, $2, $3, $4, $5);
