-- Clears the failures of the event at which projection ?1 was. Lock: that of the file's writer. Index: the primary key.
update millrace_projections set failing_position = 0, attempts = 0, failing_since = null, crash_attempts = 0 where id = ?1
