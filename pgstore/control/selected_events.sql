-- Returns the events of stream $2 of tenant $1, or those at the positions $3: positions, streams, types and headers. Indexes:
-- tenants_pkey, that of events by stream and version, events_pkey. Locks nothing.
select e.global_seq, e.stream_id, e.type, coalesce(e.headers::text, '')
  from {control}.tenants t join {tenant}.events e on e.stream_id = $2::text where t.tenant = $1::text
 union all
select e.global_seq, e.stream_id, e.type, coalesce(e.headers::text, '')
  from {control}.tenants t join {tenant}.events e on e.global_seq = any($3::bigint[]) where t.tenant = $1::text
