-- Returns the server's incarnation and the object id of the database: a copy of a database has the incarnation of the original. Locks
-- nothing. Index: pg_database_datname_index.
select {control}.incarnation(), d.oid::bigint from pg_database d where d.datname = current_database()
