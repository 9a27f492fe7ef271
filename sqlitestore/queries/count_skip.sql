-- Counts a skipped event of projection ?1, and clears its failures. Lock: that of the file's writer. Index: the primary key.
update millrace_projections set skipped = skipped + 1, failing_position = 0, attempts = 0, failing_since = null, crash_attempts = 0
where id = ?1
