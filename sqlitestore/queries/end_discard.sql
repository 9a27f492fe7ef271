-- Ends the discard ?1 at ?2, with its result ?3. Index: the primary key. Lock: that of the file's writer.
update millrace_commands set done = ?3, ended_at = ?2 where id = ?1
