-- Returns all tenants with the names of their schemas, versions, states, and whether their schemas exist. Locks nothing.
-- Indexes: tenants_pkey, that of the catalog.
select t.tenant, t.schema_name, t.version, t.state, n.oid is not null
  from {control}.tenants t left join pg_catalog.pg_namespace n on n.nspname = t.schema_name
 order by t.tenant
