-- Tries to take the session lock of a node, an advisory lock with key $1. Lock: that one, until the session ends; it
-- does not wait for it. Needs no index.
select pg_try_advisory_lock($1::bigint)
