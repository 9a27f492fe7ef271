-- Forgets what the partitions $1, which the caller has locked, know about events: failures, attempts, and events that were
-- passed before. At checkpoint $2 0, skipped events count anew. $2 and $3 are the positions from which and to which they are
-- rebuilt; they are not rebuilt if $3 is at most $2. Index: projections_pkey. Locks: the rows FOR NO KEY UPDATE until the
-- commit.
update {control}.projections
   set passed_from = '{}', passed_to = '{}', passed_upto = '{}', failed_reason = null, failed_epoch = null, halted = false,
       skipped = case when $2::bigint = 0 then 0 else skipped end, failing_position = 0, attempts = 0, crash_position = 0,
       crash_attempts = 0, crash_since = null, failing_since = null, last_error = null, last_error_at = null, next_attempt_at = null,
       missing_object = false,
       rebuild_since = case when $3::bigint > $2::bigint then clock_timestamp() end, rebuild_from = $2::bigint, rebuild_to = $3::bigint
 where id = any($1::integer[])
