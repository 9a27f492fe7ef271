-- Returns the id, the schema and the state of tenant $1, after lock_tenants.sql. Locks nothing. Index: tenants_pkey.
select id, schema_name, state from {control}.tenants where tenant = $1::text
