-- Ends the replay command ?1 at ?2, unless it has ended, and returns the dead letter and the stream that it was at.
-- Index: the primary key. Lock: that of the file's writer.
update millrace_commands set ended_at = ?2 where id = ?1 and ended_at is null returning current_dead_letter, current_stream
