-- Returns the streams after stream $1, at most $2, in order. The columns are those of transfer.Streams. Locks nothing.
-- Index: streams_pkey.
select stream_id, version from {tenant}.streams where stream_id > $1::text order by stream_id limit $2::bigint
