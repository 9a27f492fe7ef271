-- Returns the number and the state of the tenant ?1, and whether it is suspended. Index: that by name. Locks nothing.
select id, state, state <> 'active' or paused from millrace_tenants where name = ?1
