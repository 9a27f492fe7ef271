-- Part of append.sql: raises the version of a stream that is at version {expected}, a parameter. Lock: the row FOR NO
-- KEY UPDATE until the transaction ends. A row at another version is not locked; if another transaction is changing
-- it, the statement waits. Index: streams_pkey.
update {tenant}.streams set version = version + {count}
where stream_id = $1::text and version = {expected}::bigint and {claimed}
returning version
