-- Returns the version of the control schema. Index: schema_versions_pkey. Locks nothing.
select coalesce(max(version), 0) from {control}.schema_versions
