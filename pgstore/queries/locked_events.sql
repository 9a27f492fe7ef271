-- Which schemas have events that sessions lock against reads, or wait to, since reads queue up behind those; a lock on an index does
-- the same. Names are resolved without locking what they name. Index: those of the catalogs. Locks: pg_locks takes those of the
-- lock manager for a moment.
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
