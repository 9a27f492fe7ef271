-- Fails if the server has no way to notice, while it runs a statement, that the client is gone. Locks nothing, needs no
-- index.
begin;
set local client_connection_check_interval = 1000;
commit
