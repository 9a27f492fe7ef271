-- Sets whether a projection should run or pause, and returns the rows of its partitions. "run" clears its failure and ends the
-- wait for its next attempt; where it was halted, the attempts at its failing event start again from 0. ?1 tenant, ?2 projection,
-- ?3 state. Indexes: tenants by name, projections by tenant. Locks: the file has one writer.
update millrace_projections
set desired_state = ?3, failed_reason = case when ?3 = 'run' then null else failed_reason end, halted = halted and ?3 <> 'run',
    attempts = case when halted and ?3 = 'run' then 0 else attempts end,
    crash_attempts = case when halted and ?3 = 'run' then 0 else crash_attempts end,
    failing_position = case when halted and ?3 = 'run' then 0 else failing_position end,
    failing_since = case when halted and ?3 = 'run' then null else failing_since end,
    next_attempt_at = case when ?3 = 'run' then null else next_attempt_at end
where tenant = (select id from millrace_tenants where name = ?1) and name = ?2
returning id
