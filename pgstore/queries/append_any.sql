-- Part of append.sql: raises the version of a stream, whatever it is, or inserts the stream. Lock: the row FOR NO KEY
-- UPDATE, or the new row, until the transaction ends. Index: streams_pkey.
insert into {tenant}.streams as s (stream_id, version)
select $1::text, {count} where {claimed}
on conflict (stream_id) do update set version = s.version + excluded.version
returning version
