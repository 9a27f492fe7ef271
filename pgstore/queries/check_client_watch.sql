-- Fails if the server cannot notice during a statement that its client is gone. Locks nothing, needs no index.
begin;
set local client_connection_check_interval = 1000;
commit
