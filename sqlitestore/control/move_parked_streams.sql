-- Moves those of the parked streams ?2 (JSON) that are in the partitions ?1 (JSON) to the partition ?3. Index: the primary key. Lock:
-- that of the file's writer.
update millrace_parked_streams set projection = ?3
where projection in (select value from json_each(?1)) and stream_id in (select value from json_each(?2))
