-- Returns whether the events of the tenant ?1 are being deleted. Index: that of tenants by name. Locks nothing.
select deleting from millrace_tenants where name = ?1
