-- Part of append.sql: inserts a stream that does not exist. Lock: the new row until the transaction ends; another
-- transaction that inserts the same stream is waited for. Index: streams_pkey.
insert into {tenant}.streams (stream_id, version)
select $1::text, {count} where {claimed}
on conflict (stream_id) do nothing
returning version
