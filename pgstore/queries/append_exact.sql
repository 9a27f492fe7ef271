-- The row of a stream that is at the version {expected}, a parameter. Lock: the row FOR NO KEY UPDATE until the
-- transaction ends; one that is at another version is not locked, unless somebody is changing it: that is waited for.
-- Index: streams_pkey.
update {tenant}.streams set version = version + cardinality($2::text[])
where stream_id = $1::text and version = {expected}::bigint and {claimed}
returning version
