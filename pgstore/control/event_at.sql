-- Returns the event of tenant $1 at position $2, or the newest if that is 0, without its contents, as a JSON object. Indexes: tenants_pkey,
-- events_pkey. Locks nothing.
select json_build_object('position', e.global_seq, 'stream', e.stream_id, 'version', e.stream_version, 'type', e.type,
       'at', (extract(epoch from e.created_at) * 1000000)::bigint)::text
  from {control}.tenants t cross join lateral (
       select * from {tenant}.events e where e.global_seq = case when $2::bigint = 0 then (select max(n.global_seq) from {tenant}.events n) else $2::bigint end) e
 where t.tenant = $1::text
