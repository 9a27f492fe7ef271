-- Returns the streams of tenant $1 as JSON objects, in order. Indexes: tenants_pkey, streams_pkey. Locks nothing.
select json_build_object('stream', s.stream_id, 'version', s.version)::text
  from {control}.tenants t cross join {tenant}.streams s where t.tenant = $1::text order by s.stream_id
