-- Returns the number of a tenant, its last position, and whether its events are being deleted. Index: that by name. Locks
-- nothing.
select id, head, deleting from millrace_tenants where name = ?1
