-- name: name_tenant
-- Names the tenant of this transaction for row-level security, and bounds its statements.
SELECT set_config('myria.tenant', $1, true), set_config('statement_timeout', $2, true);

-- name: name_tenant_and_bound_idling
-- As name_tenant; a client that stops in the middle of the transaction loses it, with every lock and row it holds.
SELECT set_config('myria.tenant', $1, true), set_config('statement_timeout', $2, true),
       set_config('idle_in_transaction_session_timeout', $3, true);

-- name: begin_append
-- As name_tenant, and takes the lock that every append holds before it allocates sequence numbers (trap 1).
SELECT set_config('myria.tenant', $1, true), set_config('statement_timeout', $2, true),
       pg_advisory_xact_lock_shared($3::bigint);

-- name: own_append_lock
-- Taken by a build for the instant in which it reads its cutoff: no append of the tenant is in flight.
SELECT pg_advisory_xact_lock($1::bigint);

-- name: bound_lock_wait
SELECT set_config('lock_timeout', $1, true);

-- name: own_publish_lock
-- Publishes, rollbacks and aborts of a tenant are serialised by it.
SELECT pg_advisory_xact_lock($1::bigint);
