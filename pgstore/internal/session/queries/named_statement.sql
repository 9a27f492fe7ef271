-- Whether the server's session knows a prepared statement by the name that its client gave. Locks nothing, needs no index.
select exists (select from pg_prepared_statements where name = $1)
