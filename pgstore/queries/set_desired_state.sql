-- Sets whether a projection should run or pause, and notifies the nodes over channel $5. "run" clears its failure; if
-- it was halted, the attempts at its failing event start again from 0. $1 tenant, $2 projection, $3 partition, $4
-- state. Index: projections_tenant_name_partition_key. Locks: the row, and the queue of notifications during the
-- commit.
with changed as (
    update {control}.projections set desired_state = $4::text, failed_reason = case when $4::text = 'run' then null else failed_reason end,
           halted = halted and $4::text <> 'run',
           attempts = case when halted and $4::text = 'run' then 0 else attempts end,
           crash_attempts = case when halted and $4::text = 'run' then 0 else crash_attempts end,
           failing_position = case when halted and $4::text = 'run' then 0 else failing_position end,
           failing_since = case when halted and $4::text = 'run' then null else failing_since end
     where tenant = $1::text and name = $2::text and partition = $3::integer
    returning id
)
select pg_notify($5::text, id::text) from changed
