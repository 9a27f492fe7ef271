-- Ends the session that holds the session lock $1. Without the right to do so it raises 42501. Locks: those of the
-- lock manager for a moment, for pg_locks. No index.
select pg_terminate_backend(pid)
  from pg_locks
 where locktype = 'advisory' and granted and objsubid = 1
   and database = (select oid from pg_database where datname = current_database())
   and (classid::bigint << 32 | objid::bigint) = $1::bigint
