-- Which session of the server's this is, whatever the connection was told when it was opened. Locks nothing. No index.
select pg_backend_pid()
