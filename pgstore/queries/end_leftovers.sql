-- Ends the sessions in which batches of earlier owners still run: those that announced one of these leases in a
-- transaction that began before the claim. $1 the class of the announcements, $2 the leases' rows, both as unsigned
-- numbers, $3 when the claim began. Who may not gets 42501. Locks: pg_locks takes those of the lock manager for a moment.
-- No index.
select pg_terminate_backend(l.pid)
  from (select distinct pid from pg_locks
         where locktype = 'advisory' and granted and objsubid = 2
           and database = (select oid from pg_database where datname = current_database())
           and classid::bigint = $1::bigint and objid::bigint = any($2::bigint[])) l
  join pg_stat_activity a on a.pid = l.pid
 where a.xact_start < $3::timestamptz
