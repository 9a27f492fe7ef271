-- Records why projection $1 waits, or null if it no longer does. A halted projection is not changed. $2 reason, $3 epoch. Index:
-- projections_pkey. Locks: the row FOR NO KEY UPDATE until the commit.
update {control}.projections set failed_reason = case when halted then failed_reason else $2::text end, failed_epoch = $3::bigint where id = $1::integer
