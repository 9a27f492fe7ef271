-- Deletes up to ?2 leases of the tenant number ?1. Lock: that of the file's writer. Indexes: that of projections by
-- tenant, and the primary key.
delete from millrace_leases where id in
(select l.id from millrace_projections p join millrace_leases l on l.id = p.id where p.tenant = ?1 limit ?2)
