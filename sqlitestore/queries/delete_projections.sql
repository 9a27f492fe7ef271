-- Deletes up to ?2 projections of the tenant number ?1, which have no leases any more. Lock: that of the file's writer.
-- Indexes: that of projections by tenant, and the primary key.
delete from millrace_projections where id in (select id from millrace_projections where tenant = ?1 limit ?2)
