-- Reports whether the session has a prepared statement $1, that is, under the name that its client chose. Locks
-- nothing, needs no index.
select exists (select from pg_prepared_statements where name = $1)
