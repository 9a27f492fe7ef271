-- Returns the schema of tenant $1, its version, its state, and whether the schema is gone. Indexes: tenants_pkey, that
-- of the catalog. Locks nothing.
select t.schema_name, t.version, t.state, not exists (select from pg_catalog.pg_namespace n where n.nspname = t.schema_name)
  from {control}.tenants t where t.tenant = $1
