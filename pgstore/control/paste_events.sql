-- Inserts the rows $2 of copy_events.sql into tenant $1. Seconds and microseconds are added separately: an interval is multiplied as a
-- double, which lacks digits for the microseconds of times far from 1970. Indexes: tenants_pkey, those of events. Locks: the new rows.
insert into {tenant}.events (global_seq, stream_id, stream_version, type, body, headers, causation_id, correlation_id, created_at)
overriding system value
select r.position, r.stream, r.version, r.type, r.body::jsonb, r.headers::jsonb, r.causation, r.correlation,
       timestamptz 'epoch' + r.at / 1000000 * interval '1 second' + r.at % 1000000 * interval '1 microsecond'
  from {control}.tenants t
 cross join json_to_recordset($2::json) as r (position bigint, stream text, version bigint, type text, body text, headers text, causation text,
                                              correlation text, at bigint)
 where t.tenant = $1::text
