-- Lock: the node's session lock, an advisory one, until the session ends; it does not wait for it. Needs no index.
select pg_try_advisory_lock($1::bigint)
