-- Returns the version of the control schema, and the tenants $1 (null: all) with their ids and states. It scans tenants
-- if it returns all. Indexes: schema_versions_pkey, tenants_pkey. Locks nothing.
select (select coalesce(max(version), 0) from {control}.schema_versions), coalesce(array_agg(t.tenant), '{}'), coalesce(array_agg(t.id), '{}'),
       coalesce(array_agg(case when t.state = 'active' and t.paused then 'paused' else t.state end), '{}')
  from {control}.tenants t
 where $1::text[] is null or t.tenant = any($1::text[])
