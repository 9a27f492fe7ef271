-- Records that tenant $1 has had $2 steps of Options.TenantSetup. Lock: the migration lock is held, and the row FOR
-- NO KEY UPDATE until the commit. Index: tenants_pkey.
update {control}.tenants set setup = $2 where tenant = $1
