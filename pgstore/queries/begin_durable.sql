-- Begins a transaction of our own that commits synchronously, whatever the session's defaults are, and is bounded by its
-- caller's context alone. One whose process is frozen or cut off between two statements is ended soon: it may have locked the
-- row of a lease, and who takes leases passes over those. Locks nothing, needs no index.
begin isolation level read committed read write;
set local synchronous_commit = on;
set local statement_timeout = 0;
set local lock_timeout = 0;
set local idle_in_transaction_session_timeout = 2000
