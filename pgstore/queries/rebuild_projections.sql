-- Makes the projections $2 of tenant $1, which is suspended, begin before the first event, without failures and dead
-- letters. They keep their tokens, partitions and desired states. Indexes: projections_tenant_name_partition_key,
-- leases_pkey, and of each other table the one by projection. Locks: the rows.
with p as (
    update {control}.projections set passed_from = '{}', passed_to = '{}', passed_upto = '{}', failed_reason = null, failed_epoch = null, halted = false,
           skipped = 0, parked = 0, failing_position = 0, attempts = 0, crash_position = 0, crash_attempts = 0, crash_since = null,
           failing_since = null, last_error = null, last_error_at = null, next_attempt_at = null, missing_object = false
     where tenant = $1::text and name = any($2::text[])
    returning id
), commands as (
    delete from {control}.commands where projection_id in (select id from p)
), letters as (
    delete from {control}.dead_letters where projection_id in (select id from p)
), streams as (
    delete from {control}.parked_streams where projection_id in (select id from p)
)
update {control}.leases set checkpoint = 0, crash_count = 0 where id in (select id from p)
