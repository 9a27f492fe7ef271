-- Lock: the store's migration lock, until the transaction ends. Needs no index.
select pg_advisory_xact_lock($1)
