-- Returns the tables and materialized views in the schema of tenant $1, without those of the store. Indexes: tenants_pkey, those
-- of the catalog. Locks nothing.
select c.relname::text
  from {control}.tenants t
  join pg_catalog.pg_namespace n on n.nspname = t.schema_name
  join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relkind in ('r', 'p', 'm')
   and c.relname not in ('streams', 'events', 'append_keys', 'append_results')
 where t.tenant = $1::text
 order by c.relname
