-- Returns the size of the table of leases in bytes, the number of its rows, whether autovacuum is turned off for it, and
-- the persistence of the table incarnation, which is u if it is UNLOGGED. $1 is the control schema. Locks nothing.
-- Indexes: those of the catalog. Reads all leases.
select pg_catalog.pg_relation_size(c.oid), (select count(*) from {control}.leases),
       coalesce('autovacuum_enabled=false' = any(c.reloptions) or 'autovacuum_enabled=off' = any(c.reloptions), false), i.relpersistence::text
  from pg_catalog.pg_namespace n
  join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = 'leases'
  join pg_catalog.pg_class i on i.relnamespace = n.oid and i.relname = 'incarnation'
 where n.nspname = $1
