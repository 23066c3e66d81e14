-- name: name_tenant
-- Names the tenant of this transaction for row-level security, and bounds its statements.
SELECT set_config('myria.tenant', $1, true), set_config('statement_timeout', $2, true);

-- name: begin
-- Names the tenant of this transaction, and bounds it: each of its statements, its waiting for its client, its
-- waiting for a lock, and (from PostgreSQL 17 on) all of it. A client that stops in the middle loses the transaction,
-- with every lock and row it holds.
SELECT set_config('myria.tenant', $1, true), set_config('statement_timeout', $2, true),
       set_config('idle_in_transaction_session_timeout', $3, true), set_config('lock_timeout', $4, true),
       CASE WHEN current_setting('server_version_num')::int >= 170000
            THEN set_config('transaction_timeout', $5, true) END;

-- name: clock
SELECT clock_timestamp();

-- name: begin_append
-- As begin, and takes the lock that every append holds before it allocates sequence numbers. The events are of the
-- tenant that exists since $7: the trigger refuses them when its name is another's by now. The statements that follow
-- have one good plan each; PostgreSQL would plan them anew every time, for longer than they run. The one that inserts
-- events counts their bytes itself.
SELECT set_config('myria.tenant', $1, true), set_config('statement_timeout', $2, true),
       set_config('idle_in_transaction_session_timeout', $3, true), set_config('lock_timeout', $4, true),
       CASE WHEN current_setting('server_version_num')::int >= 170000
            THEN set_config('transaction_timeout', $5, true) END,
       set_config('plan_cache_mode', 'force_generic_plan', true), set_config('myria.tenant_since', $7, true),
       set_config('myria.tally', 'own', true), pg_advisory_xact_lock_shared($6::bigint);

-- name: begin_sharing
-- As begin, and takes a lock that others who share it may hold, too. What follows sees what was committed before it was
-- had: each statement of this transaction sees the database as it is then.
SELECT set_config('myria.tenant', $1, true), set_config('statement_timeout', $2, true),
       set_config('idle_in_transaction_session_timeout', $3, true), set_config('lock_timeout', $4, true),
       CASE WHEN current_setting('server_version_num')::int >= 170000
            THEN set_config('transaction_timeout', $5, true) END,
       pg_advisory_xact_lock_shared($6::bigint);

-- name: bound_connection
-- For a connection that is nobody else's: PostgreSQL ends what it does when its client is gone or does not take an
-- answer, and a transaction that was begun and never named its tenant.
SELECT set_config('idle_in_transaction_session_timeout', $1, false),
       set_config('tcp_keepalives_idle', '15', false), set_config('tcp_keepalives_interval', '5', false),
       set_config('tcp_keepalives_count', '3', false), set_config('tcp_user_timeout', $2, false);

-- name: look_after_the_client
-- Where the server's platform can tell, a statement ends soon after its client is gone.
SELECT set_config('client_connection_check_interval', '5s', false);

-- name: own_append_lock
-- Taken by a build for the instant in which it reads its cutoff: no append of the tenant is in flight.
SELECT pg_advisory_xact_lock($1::bigint);

-- name: hold_briefly
-- For a lock for which others wait at once: how long to wait for it, and for the client that has it.
SELECT set_config('lock_timeout', $1, true), set_config('idle_in_transaction_session_timeout', $2, true);

-- name: lock_holders
-- The backends that hold an advisory lock of a 64-bit key, in any mode.
SELECT DISTINCT pid FROM pg_locks
WHERE locktype = 'advisory' AND granted AND objsubid = 1
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (classid::bigint << 32 | objid::bigint) = $1::bigint
ORDER BY pid;

-- name: own_publish_lock
-- Publishes, rollbacks and aborts of a tenant are serialised by it.
SELECT pg_advisory_xact_lock($1::bigint);
