-- Returns the last position of tenant ?1. Index: that by name. Locks nothing.
select head from millrace_tenants where name = ?1
