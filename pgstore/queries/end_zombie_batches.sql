-- Ends the sessions in which batches of previous owners still run: those that hold an announcement of one of these
-- leases, in a transaction that began before the claim. A batch that is kept apart from them
-- holds another mode. $1 class of the announcements, $2 rows of the leases, both as unsigned numbers, $3 when the claim
-- began. Without the right to do so it raises 42501. Locks: those of the lock manager for a moment, for pg_locks. No index.
select pg_terminate_backend(l.pid)
  from (select distinct pid from pg_locks
         where locktype = 'advisory' and mode = 'ShareLock' and granted and objsubid = 2
           and database = (select oid from pg_database where datname = current_database())
           and classid::bigint = $1::bigint and objid::bigint = any($2::bigint[])) l
  join pg_stat_activity a on a.pid = l.pid
 where a.xact_start < $3::timestamptz
