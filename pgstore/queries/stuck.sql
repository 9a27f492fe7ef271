-- Reports whether backend $1 waits for a lock of another session, and whether its statement is a commit. Another user's
-- statement is hidden, and is taken for none. Locks: the lock manager for a moment. Needs no index.
select cardinality(pg_blocking_pids($1::integer)) > 0,
       coalesce((select a.query like 'commit%' from pg_stat_get_activity($1::integer) a), false)
