-- Marks the dead letters of the partition ?1 that the replay ?2 has tried as tried by the replay ?3. Index: that by
-- projection and position. Lock: that of the file's writer.
update millrace_dead_letters set last_command = ?3 where projection = ?1 and last_command = ?2
