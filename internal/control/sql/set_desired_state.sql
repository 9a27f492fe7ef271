-- Sets whether a projection should run or pause, and returns the rows of its partitions. "run" clears its failure and ends the
-- wait for its next attempt; where it was halted, the attempts at its failing event start again from 0. $1 tenant, $2 projection,
-- $3 state. The caller holds the structural lock of the tenant. Index: projections_tenant_name_partition_key. Locks: the rows FOR NO
-- KEY UPDATE until the commit.
update {control}.projections
   set desired_state = $3::text, failed_reason = case when $3::text = 'run' then null else failed_reason end,
       halted = halted and $3::text <> 'run',
       attempts = case when halted and $3::text = 'run' then 0 else attempts end,
       crash_attempts = case when halted and $3::text = 'run' then 0 else crash_attempts end,
       failing_position = case when halted and $3::text = 'run' then 0 else failing_position end,
       failing_since = case when halted and $3::text = 'run' then null else failing_since end,
       next_attempt_at = case when $3::text = 'run' then null else next_attempt_at end
 where tenant = {tenant_id $1::text} and name = $2::text
returning id
