-- The stream's row, whatever its version, or a new one. Lock: the row FOR NO KEY UPDATE, or the new one, until the
-- transaction ends. Index: streams_pkey.
insert into {tenant}.streams as s (stream_id, version)
select $1::text, cardinality($2::text[]) where {claimed}
on conflict (stream_id) do update set version = s.version + excluded.version
returning version
