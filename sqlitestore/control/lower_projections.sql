-- Forgets what the partitions ?1 (JSON) know about events above ?2, the end of the restored events: ranges that were passed end
-- there. It forgets failures and attempts too. ?3 is why they stay stopped, null if they run. Index: the primary key. Lock: that
-- of the file's writer. It scans the list of ranges.
update millrace_projections
set passed = (select json_group_array(json_array(value ->> 0, value ->> 1, min(value ->> 2, ?2))) from json_each(passed)),
    failed_reason = ?3, failed_epoch = null, halted = ?3 is not null, failing_position = 0, attempts = 0, crash_position = 0,
    crash_attempts = 0, crash_since = null, failing_since = null, last_error = null, last_error_at = null, next_attempt_at = null,
    missing_object = 0, rebuild_to = min(rebuild_to, ?2)
where id in (select value from json_each(?1))
