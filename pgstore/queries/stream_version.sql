-- The version of a stream; no row where there is none. Index: streams_pkey. Locks nothing.
select version from {tenant}.streams where stream_id = $1
