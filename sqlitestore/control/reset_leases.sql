-- Sets the checkpoints of the partitions ?1 (JSON) to ?2, and takes the leases away. The new epoch ?3 is higher than all
-- of theirs: no owner can commit any more. Index: the primary key. Lock: that of the file's writer.
update millrace_leases
set checkpoint = ?2, epoch = ?3, crash_count = 0, free_since = case when owner is null then free_since else :now end, owner = null
where id in (select value from json_each(?1))
