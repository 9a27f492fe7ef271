-- Releases the leases of owners that died, as claims of other owners would. ?1 is the time. Lock: that of the file's
-- writer. Index: that by owner.
update millrace_leases set owner = null, free_since = ?1, epoch = epoch + 1, crash_count = crash_count + 1 where owner is not null
