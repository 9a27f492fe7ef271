-- Returns the version of the control schema and all tenants. It scans tenants. Index: schema_versions_pkey. Locks
-- nothing.
select (select coalesce(max(version), 0) from {control}.schema_versions),
array(select tenant from {control}.tenants)
