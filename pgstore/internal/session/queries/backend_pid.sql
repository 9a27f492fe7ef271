-- Returns the process id of the server's session, whatever the client was told when it connected. Locks nothing. No
-- index.
select pg_backend_pid()
