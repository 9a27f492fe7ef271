-- Takes the store's migration lock, with key $1. Lock: that one, until the transaction ends. Needs no index.
select pg_advisory_xact_lock($1)
