-- Returns the names and the heads of all tenants. It scans tenants, and needs no index. Locks nothing.
select name, head from millrace_tenants
