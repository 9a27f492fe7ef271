-- How many steps of the user's setup a tenant has had. Index: tenants_pkey. Locks nothing.
select setup from {control}.tenants where tenant = $1
