-- Returns the transactions of this database that have been open for at least $1 seconds: the process, the role, the
-- application, the state, the age in seconds, and whether it may hold back the settled mark of a tenant whose schema is in
-- $2. Locks: those of the lock manager for a moment, for pg_locks. Indexes: those of the catalog.
select a.pid, coalesce(a.usename::text, ''), coalesce(a.application_name, ''), coalesce(a.state, ''),
       extract(epoch from clock_timestamp() - a.xact_start)::double precision,
       exists (select from pg_catalog.pg_locks l
                 join pg_catalog.pg_class c on c.oid = l.relation and c.relname = 'events'
                 join pg_catalog.pg_namespace n on n.oid = c.relnamespace and n.nspname = any($2::text[])
                where l.pid = a.pid and l.locktype = 'relation' and l.mode = 'RowExclusiveLock' and l.granted)
  from pg_catalog.pg_stat_activity a
 where a.datname = current_database() and a.pid <> pg_backend_pid() and a.backend_type = 'client backend'
   and a.xact_start <= clock_timestamp() - make_interval(secs => $1::double precision)
 order by a.xact_start
 limit 10
