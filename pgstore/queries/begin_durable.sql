-- Begins a transaction of our own that commits synchronously, whatever the session's defaults are, and is bounded by its
-- caller's context alone. If its process is frozen or cut off between two statements, the server ends it soon: it may have
-- locked the row of a lease, which a claim would pass over. Locks nothing, needs no index.
begin isolation level read committed read write;
set local synchronous_commit = on;
set local statement_timeout = 0;
set local lock_timeout = 0;
set local idle_in_transaction_session_timeout = 2000
