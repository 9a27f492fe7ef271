-- Who may still make an event visible: the transactions that hold ROW EXCLUSIVE on these tenants' events tables, whose names
-- are resolved anew each time, and the incarnation of the server. Nulls mean that there are none. It raises on a standby,
-- which does not show the locks of its primary. Locks: pg_locks takes those of the lock manager for a moment. Indexes: those
-- of the catalogs.
select one.incarnation, h.schema_name, h.virtualtransaction, h.pid
  from (select {control}.incarnation()) as one (incarnation)
  left join lateral (
    select n.nspname::text as schema_name, l.virtualtransaction, l.pid
      from pg_locks l
      join pg_class c on c.oid = l.relation and c.relname = 'events'
      join pg_namespace n on n.oid = c.relnamespace and n.nspname = any($1)
     where l.locktype = 'relation' and l.mode = 'RowExclusiveLock' and l.granted
       and l.database = (select oid from pg_database where datname = current_database())
  ) h on true
