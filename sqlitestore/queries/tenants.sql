-- Returns all tenants with their ids and states. It scans the index by name. Locks nothing.
select id, name, case when state = 'active' and paused then 'paused' else state end from millrace_tenants order by name
