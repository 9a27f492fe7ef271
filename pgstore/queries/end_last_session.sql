-- Ends the session that holds a node's session lock, by the lock's key. Who may not gets 42501. Locks: pg_locks takes
-- those of the lock manager for a moment. No index.
select pg_terminate_backend(pid)
  from pg_locks
 where locktype = 'advisory' and granted and objsubid = 1
   and database = (select oid from pg_database where datname = current_database())
   and (classid::bigint << 32 | objid::bigint) = $1::bigint
