-- Returns the process id of the server's session, which a pooler hides from the client. Locks nothing. No
-- index.
select pg_backend_pid()
