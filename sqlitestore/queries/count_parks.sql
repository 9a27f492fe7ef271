-- Adds ?2 to the parked events of projection ?1. If ?3 is false, it also clears the failures of its event. Lock: that of the
-- file's writer. Index: the primary key.
update millrace_projections
set parked = parked + ?2,
failing_position = case when ?3 then failing_position else 0 end, attempts = case when ?3 then attempts else 0 end,
failing_since = case when ?3 then failing_since end, crash_attempts = case when ?3 then crash_attempts else 0 end
where id = ?1
