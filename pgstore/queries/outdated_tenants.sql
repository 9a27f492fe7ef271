-- Returns the next tenants after $3 that Migrate has to process: those at a version below $1 or too new, with fewer
-- than $2 steps of Options.TenantSetup, or whose schema is gone, except those that are being dropped. Indexes:
-- tenants_pkey, that of the catalog. Locks nothing.
select t.tenant from {control}.tenants t
 where t.tenant > $3 and t.state <> 'dropping'
   and (t.version < $1 or t.version > $1 + 1 or t.setup < $2
        or not exists (select from pg_catalog.pg_namespace n where n.nspname = t.schema_name))
 order by t.tenant limit 1000
