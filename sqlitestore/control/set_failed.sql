-- Records why projection ?1 waits, or null if it no longer does. A halted projection is not changed. ?2 reason, ?3 epoch. Lock:
-- that of the file's writer. Index: the primary key.
update millrace_projections set failed_reason = case when halted then failed_reason else ?2 end, failed_epoch = ?3 where id = ?1
