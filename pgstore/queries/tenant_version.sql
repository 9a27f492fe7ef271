-- Where a tenant is and its version. Index: tenants_pkey. Locks nothing.
select schema_name, version from {control}.tenants where tenant = $1
