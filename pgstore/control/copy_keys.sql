-- Returns the idempotency keys of tenant $1 as JSON objects, in order. Indexes: tenants_pkey, append_keys_pkey, append_results_pkey. Locks
-- nothing.
select json_build_object('key', k.key, 'stream', k.stream_id, 'first', r.first_version, 'last', r.last_version,
       'at', (extract(epoch from k.created_at) * 1000000)::bigint)::text
  from {control}.tenants t cross join {tenant}.append_keys k left join {tenant}.append_results r on r.key = k.key
 where t.tenant = $1::text order by k.key
