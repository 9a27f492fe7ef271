-- Counts the tenants in each state. It scans tenants and sorts the states. No index. Locks nothing.
select case when state = 'active' and paused then 'paused' else state end, count(*) from millrace_tenants group by 1
