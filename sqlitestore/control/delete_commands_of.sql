-- Deletes the commands of the projections ?1, a JSON array. Index: that of commands by projection. Lock: that of the file's
-- writer.
delete from millrace_commands where projection in (select value from json_each(?1))
