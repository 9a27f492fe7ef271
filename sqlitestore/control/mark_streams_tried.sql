-- Marks the parked streams of the partition ?1 that the replay ?2 has tried as tried by the replay ?3. Index: the primary
-- key. Lock: that of the file's writer.
update millrace_parked_streams set last_command = ?3 where projection = ?1 and last_command = ?2
