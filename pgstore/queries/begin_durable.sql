-- Begins a transaction of the store that commits synchronously, whatever the session's defaults are. Its caller's
-- context alone bounds it. If its process is frozen or cut off between two statements, the server ends it within two
-- seconds: it may have locked the row of a lease, which claims would then skip. Locks nothing, needs no index.
begin isolation level read committed read write;
set local synchronous_commit = on;
set local statement_timeout = 0;
set local lock_timeout = 0;
set local idle_in_transaction_session_timeout = 2000
