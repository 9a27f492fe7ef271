-- The settings of a batch that is one message, and its announcement. $1 is the limit of a wait for a lock, $2 that of a statement, $3 that
-- of a session which waits in a transaction, in milliseconds, $4 the name of the batch, $5 and $6 the advisory lock. {first} restores
-- the session after the batch before, {more} has the settings that only some servers, tenants and batches need; $7 is the search path.
-- Lock: the announcement, shared, until the commit. Index: none.
select {first}set_config('lock_timeout', $1::text, true), set_config('statement_timeout', $2::text, true),
       set_config('idle_in_transaction_session_timeout', $3::text, true), set_config('millrace.batch', $4::text, true), {more}
       pg_advisory_xact_lock_shared($5::integer, $6::integer)
