-- Lists the tenants with their heads and states. It scans the index by name. Locks nothing.
select name, head, state, paused from millrace_tenants order by name
