-- Returns the parked streams of the partitions ?1, a JSON array, with the partitions. Index: the primary key. Locks
-- nothing.
select projection, stream_id from millrace_parked_streams where projection in (select value from json_each(?1))
