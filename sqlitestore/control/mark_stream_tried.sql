-- Marks the parked stream ?2 of the partition ?1, if the replay ?3 has tried it, as tried by the replay ?4. Index: the
-- primary key. Lock: that of the file's writer.
update millrace_parked_streams set last_command = ?4 where projection = ?1 and stream_id = ?2 and last_command = ?3
