-- Returns the transactions that hold locks on tables of schema $1; with $2 also those that only read. Locks: those of
-- the lock manager for a moment, for pg_locks. Indexes: those of the catalogs.
select distinct case when l.pid is null then 'prepared transaction ' || l.virtualtransaction else 'backend ' || l.pid end as holder
  from pg_locks l
  join pg_class c on c.oid = l.relation
  join pg_namespace n on n.oid = c.relnamespace and n.nspname = $1::text
 where l.locktype = 'relation' and l.granted and ($2::boolean or l.mode not in ('AccessShareLock', 'RowShareLock'))
   and l.database = (select oid from pg_database where datname = current_database())
   and l.pid is distinct from pg_backend_pid()
 order by 1
