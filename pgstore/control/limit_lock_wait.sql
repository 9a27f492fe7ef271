-- Ends statements of this transaction that wait longer than $1 milliseconds for a lock. If a vacuum or an ANALYZE works
-- on a table of schema $2 (null: not checked), they may wait until half a second after deadlock_timeout, at most 10 s.
-- By then the server has cancelled an autovacuum that they wait for. The subquery returns null if none works. Locks:
-- those of the lock manager for a moment, for pg_locks. Indexes: those of the catalogs.
select set_config('lock_timeout', greatest($1::bigint, (
    select max(least(s.setting::bigint + 500, 10000))
      from pg_settings s
     where s.name = 'deadlock_timeout' and $2::text is not null
       and exists (select from pg_locks l join pg_class c on c.oid = l.relation
                    where l.locktype = 'relation' and l.mode = 'ShareUpdateExclusiveLock' and l.granted
                      and l.database = (select oid from pg_database where datname = current_database())
                      and c.relnamespace = (select n.oid from pg_namespace n where n.nspname = $2::text))))::text, true)
