-- Returns those of the tenants $1 that are complete: they are not being dropped, their version is $2 or one newer, at
-- least $3 steps of Options.TenantSetup were applied, and their schemas exist. Indexes: tenants_pkey, that of the
-- catalog. Locks nothing.
select t.tenant from {control}.tenants t
 where t.tenant = any($1::text[]) and t.state <> 'dropping' and t.version between $2 and $2 + 1 and t.setup >= $3
   and exists (select from pg_catalog.pg_namespace n where n.nspname = t.schema_name)
