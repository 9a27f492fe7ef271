-- Returns the projections whose batches run in the sessions $1, which were in a deadlock that was just found, or in sessions
-- that wait for these or that these wait for: they write the same rows. The last column says whether they wait. A session whose
-- transaction is younger than the deadlock has begun another one since; the age is hidden for sessions of other roles. $2 is the
-- class of the announcements, as an unsigned number. Index: projections_pkey. Locks: those of the lock manager for a moment, for
-- pg_locks.
with recursive waits as materialized (
    select w.pid, b.pid as blocker
      from (select distinct pid from pg_locks where not granted and locktype in ('transactionid', 'tuple')) w,
           unnest(pg_blocking_pids(w.pid)) b(pid)
), met(pid) as (
    select a.pid
      from pg_stat_activity a
     where a.pid = any($1::integer[])
       and coalesce(a.xact_start < clock_timestamp() - current_setting('deadlock_timeout')::interval, true)
     union
    select case when w.pid = m.pid then w.blocker else w.pid end
      from met m join waits w on m.pid in (w.pid, w.blocker)
)
select p.id, p.tenant, p.name, p.partition, m.pid in (select w.pid from waits w)
  from met m
  join pg_locks l on l.pid = m.pid
  join {control}.projections p on p.id = l.objid::bigint
 where l.locktype = 'advisory' and l.mode = 'ShareLock' and l.granted and l.objsubid = 2
   and l.database = (select oid from pg_database where datname = current_database())
   and l.classid::bigint = $2::bigint
 order by p.id
