-- Returns the number of a tenant. Index: that by name. Locks nothing.
select id from millrace_tenants where name = ?1
