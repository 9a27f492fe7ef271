-- Moves the checkpoint of lease ?1 from ?2 to ?3, but not past the tenant's last event: a backup was restored into the open file
-- then. Lock: that of the file's writer. Indexes: the primary keys.
update millrace_leases set checkpoint = ?3, crash_count = 0
where id = ?1 and checkpoint = ?2
and ?3 <= (select t.head from millrace_projections p join millrace_tenants t on t.id = p.tenant where p.id = ?1)
