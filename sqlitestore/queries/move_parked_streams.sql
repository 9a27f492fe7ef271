-- Moves the parked streams ?1, a JSON array of partitions and streams, to the partition ?2. Index: the primary key. Lock:
-- that of the file's writer.
update millrace_parked_streams set projection = ?2 where (projection, stream_id) in
(select value ->> 0, value ->> 1 from json_each(?1))
