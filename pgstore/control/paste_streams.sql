-- Inserts the rows $2 of copy_streams.sql into tenant $1. Indexes: tenants_pkey, streams_pkey. Locks: the new rows.
insert into {tenant}.streams (stream_id, version)
select r.stream, r.version
  from {control}.tenants t cross join json_to_recordset($2::json) as r (stream text, version bigint) where t.tenant = $1::text
