-- Returns the transactions that may still make an event visible, because they hold ROW EXCLUSIVE on events in one of
-- the schemas $1, and the incarnation. One row of nulls means that there are none. Names of tables are resolved each
-- time. It raises on a standby, which does not show the locks of its primary. Locks: those of the lock manager for a
-- moment, for pg_locks. Indexes: those of the catalogs.
select server.incarnation, h.schema_name, h.virtualtransaction, h.pid
  from (select {control}.incarnation()) as server (incarnation)
  left join lateral (
    select n.nspname::text as schema_name, l.virtualtransaction, l.pid
      from pg_locks l
      join pg_class c on c.oid = l.relation and c.relname = 'events'
      join pg_namespace n on n.oid = c.relnamespace and n.nspname = any($1)
     where l.locktype = 'relation' and l.mode = 'RowExclusiveLock' and l.granted
       and l.database = (select oid from pg_database where datname = current_database())
  ) h on true
