-- Returns of stream $2 of tenant $1 its version, 0 if there is none, and the times of its first and last event, or null. The
-- first column says that a drop is deleting events one by one, as in a file. Infinite times become the nearest ones that Go has.
-- Indexes: tenants_pkey, streams_pkey, and that of events by stream and version. Locks nothing.
select false, coalesce(s.version, 0),
       (select least(greatest(e.created_at, timestamptz '0001-01-01 00:00:00+00'), timestamptz '9999-12-31 00:00:00+00')
          from {tenant}.events e where e.stream_id = $2::text order by e.stream_version limit 1),
       (select least(greatest(e.created_at, timestamptz '0001-01-01 00:00:00+00'), timestamptz '9999-12-31 00:00:00+00')
          from {tenant}.events e where e.stream_id = $2::text order by e.stream_version desc limit 1)
  from {control}.tenants t
  left join {tenant}.streams s on s.stream_id = $2::text
 where t.tenant = $1::text
