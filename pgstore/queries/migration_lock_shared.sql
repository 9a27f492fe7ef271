-- Takes the store's migration lock, with key $1, together with other transactions that create tenants. Lock: that one,
-- SHARE, until the transaction ends. Needs no index.
select pg_advisory_xact_lock_shared($1)
