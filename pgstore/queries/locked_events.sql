-- Returns the schemas in which a session holds ACCESS EXCLUSIVE on events or waits for it: reads queue behind both. A
-- lock on an index of events counts too. Names are resolved without locking the tables. Index: those of the catalogs.
-- Locks: those of the lock manager for a moment, for pg_locks.
select n.nspname::text as schema_name, l.pid, coalesce(a.application_name, '') as application
  from pg_locks l
  join pg_class c on c.oid = l.relation
  left join pg_index i on i.indexrelid = c.oid
  join pg_class t on t.oid = coalesce(i.indrelid, c.oid) and t.relname = 'events'
  join pg_namespace n on n.oid = t.relnamespace
  left join pg_stat_activity a on a.pid = l.pid
 where l.locktype = 'relation' and l.mode = 'AccessExclusiveLock'
   and l.database = (select oid from pg_database where datname = current_database())
 order by n.nspname, l.granted desc, l.pid
