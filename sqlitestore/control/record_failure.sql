-- Records for projection ?1 the number of failed attempts at an event, and returns the time of the first one. It clears
-- crash_attempts, since the process is alive. ?2 position, ?3 attempts (0: only record why the projection waits), ?4 error, ?5 whether
-- a database object is missing, ?6 the time until the next attempt, null if that is not known. Lock: that of the file's writer. Index:
-- the primary key.
update millrace_projections
set failing_since = case when failing_position = ?2 and attempts > 0 then failing_since else :now end,
failing_position = ?2, attempts = ?3, last_error = ?4, last_error_at = :now, next_attempt_at = :now + ?6, missing_object = ?5, crash_attempts = 0
where id = ?1
returning failing_since
