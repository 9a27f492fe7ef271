-- Inserts a command on the dead letters of projection ?2, and returns its number. ?1 the first row of the command, null
-- in that row, ?3 kind, ?4 to ?7 the filter as in count_dead_letters.sql, ?8 the limit for all rows together, ?9 the
-- time. Lock: that of the file's writer. Indexes: those of commands.
insert into millrace_commands (root, projection, kind, dead_letter_ids, stream_id, type, error, max_events, created_at)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) returning id
