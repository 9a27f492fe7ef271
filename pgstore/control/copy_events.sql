-- Returns the events of tenant $1 as JSON objects, in order. Times are as readers get them: other programs may insert infinity. Indexes:
-- tenants_pkey, events_pkey. Locks nothing.
select json_build_object('position', e.global_seq, 'slot', e.slot, 'stream', e.stream_id, 'version', e.stream_version, 'type', e.type,
       'body', e.body::text, 'headers', e.headers::text, 'causation', e.causation_id, 'correlation', e.correlation_id,
       'at', (extract(epoch from least(greatest(e.created_at, timestamptz '0001-01-01 00:00:00+00'), timestamptz '9999-12-31 00:00:00+00'))
              * 1000000)::bigint, 'intact', 1)::text
  from {control}.tenants t cross join {tenant}.events e where t.tenant = $1::text order by e.global_seq
