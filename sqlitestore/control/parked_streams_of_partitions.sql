-- Returns the parked streams of the partitions ?1 (JSON). Index: the primary key. Locks nothing.
select stream_id from millrace_parked_streams where projection in (select value from json_each(?1))
