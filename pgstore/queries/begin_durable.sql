-- Begins a transaction of our own that commits synchronously, whatever the session's defaults are. Locks nothing, needs
-- no index.
begin isolation level read committed read write;
set local synchronous_commit = on
