-- Whether a backend waits for somebody's lock. Locks: the lock manager for a moment. Needs no index.
select cardinality(pg_blocking_pids($1::integer)) > 0
