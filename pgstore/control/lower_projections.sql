-- Forgets what the partitions $1, which the caller has locked, know about events above $2, the end of the restored events:
-- ranges that were passed end there. It forgets failures and attempts too. $3 is why they stay stopped, null if they run. Index:
-- projections_pkey. Locks: the rows FOR NO KEY UPDATE until the commit.
update {control}.projections p
   set passed_upto = array(select least(u.position, $2::bigint) from unnest(p.passed_upto) with ordinality as u(position, place) order by u.place),
       failed_reason = $3::text, failed_epoch = null, halted = $3::text is not null, failing_position = 0, attempts = 0, crash_position = 0,
       crash_attempts = 0, crash_since = null, failing_since = null, last_error = null, last_error_at = null, next_attempt_at = null,
       missing_object = false, rebuild_to = least(p.rebuild_to, $2::bigint)
 where id = any($1::integer[])
