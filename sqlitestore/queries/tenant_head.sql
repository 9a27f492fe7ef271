-- Returns the number of a tenant and its last position. Index: that by name. Locks nothing.
select id, head from millrace_tenants where name = ?1
