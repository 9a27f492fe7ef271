-- Returns the last position that tenant ?1 has given to an event, which may have been deleted. Index: that by name. Locks nothing.
select head from millrace_tenants where name = ?1
