-- Returns the version of stream $1, or no row if it does not exist. Index: streams_pkey. Locks nothing.
select version from {tenant}.streams where stream_id = $1
