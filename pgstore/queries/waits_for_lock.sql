-- Reports whether backend $1 waits for a lock of another session. Locks: the lock manager for a moment. Needs no
-- index.
select cardinality(pg_blocking_pids($1::integer)) > 0
