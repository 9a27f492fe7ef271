-- Fails where the server cannot notice in mid-statement that its client is gone. Locks nothing, needs no index.
begin;
set local client_connection_check_interval = 1000;
commit
