-- Returns whether the functions of the fence are those of fence_functions.sql, or newer ones. Locks nothing. Indexes:
-- those of the catalog.
select count(*) = 2
  from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
 where n.nspname = $1::text and p.proname in ('check_lease', 'advance')
   and substring(p.prosrc from 'Version of the fence: ([0-9]+)')::integer >= 1
