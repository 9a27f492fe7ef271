-- Moves the commands of the partitions ?1 (JSON) to the partition ?2, and ends the open ones. New rows continue them: see
-- continue_replay.sql. Their results stay. Index: that of ended commands. Lock: that of the file's writer.
update millrace_commands
set projection = ?2, ended_at = coalesce(ended_at, :now), current_dead_letter = null, current_stream = null
where projection in (select value from json_each(?1))
