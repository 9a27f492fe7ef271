-- Forgets what the partitions ?1 (JSON) know about events: failures, attempts, and events that were passed before. At
-- checkpoint ?2 0, skipped events count anew. ?2 and ?3 are the positions from which and to which they are rebuilt; they are
-- not rebuilt if ?3 is at most ?2. Index: the primary key. Lock: that of the file's writer.
update millrace_projections
set passed = '[]', failed_reason = null, failed_epoch = null, halted = 0, skipped = case when ?2 = 0 then 0 else skipped end,
    failing_position = 0, attempts = 0, crash_position = 0, crash_attempts = 0, crash_since = null, failing_since = null,
    last_error = null, last_error_at = null, next_attempt_at = null, missing_object = 0,
    rebuild_since = case when ?3 > ?2 then :now end, rebuild_from = ?2, rebuild_to = ?3
where id in (select value from json_each(?1))
