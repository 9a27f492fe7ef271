-- Returns how many steps of Options.TenantSetup tenant $1 has had. Index: tenants_pkey. Locks nothing.
select setup from {control}.tenants where tenant = $1
