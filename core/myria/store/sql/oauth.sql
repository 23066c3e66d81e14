-- name: client
SELECT client_id, name, redirect_uris FROM myria.oauth_clients WHERE client_id = $1;

-- name: register
SELECT myria.oauth_register($1, $2, $3, $4);

-- name: grant
SELECT myria.oauth_grant($1, $2, $3, $4, $5, $6, $7, $8, $9);

-- name: exchange
SELECT myria.oauth_exchange($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- name: revoke
SELECT myria.oauth_revoke($1, $2);
