-- Counts an attempt of projection ?1 at an event before it is made, because the process may crash during it. ?2 position, ?3
-- attempts. Lock: that of the file's writer. Index: the primary key.
update millrace_projections
set crash_since = case when crash_position = ?2 and crash_attempts > 0 then crash_since else :now end, crash_position = ?2, crash_attempts = ?3
where id = ?1
