-- Releases the leases of the tenant number ?1 that the node ?2 does not own, and raises their epochs, so that their
-- previous owners cannot commit. ?3 is the time. Lock: that of the file's writer. Indexes: that of projections by tenant,
-- and the primary key of leases.
update millrace_leases set owner = null, free_since = ?3, epoch = epoch + 1, crash_count = crash_count + 1
where id in (select id from millrace_projections where tenant = ?1) and owner is not null and owner <> ?2
