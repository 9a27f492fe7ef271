-- Lists the tenants in the state ?1. It scans the tenants. Needs no index. Locks nothing.
select name from millrace_tenants where state = ?1 order by name
